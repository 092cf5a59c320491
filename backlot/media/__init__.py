"""Images and videos: pure functions of a recipe, which run in worker processes. No HTTP, no money.

`recipe` has what decides the content; `images` and `videos` make the files from a landscape (`scenes`, with
the places in `places`) and the prompt as a title (`titles`); `workers` has the processes and the cache.
"""
