"""Images and videos: pure functions of a recipe. No HTTP, no money.

`recipe` has what decides the content; `pictures` draws an image and `videos` lets it move. A file is made
when it is first fetched, so only the recipe has to be stored.
"""
