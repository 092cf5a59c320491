"""Images and videos: pure functions of a recipe. No HTTP, no money.

`recipe` has what decides the content; `pictures` draws an image and `videos` lets it move; `cache` makes
files in threads and keeps them.
"""
