"""Pictures and films: pure functions of a recipe, run in worker processes. Nothing here knows of HTTP or money."""
