"""Pictures and films: pure functions of a recipe, run in worker processes. No HTTP and no money here."""
