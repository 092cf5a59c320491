"""What `callsheet init` proposes: a config for a batch file that has none, or a first batch file.

Nothing here buys or writes anything. `guess.py` looks at what a file's columns hold, and prices its rows on
each model; `starter.py` has a few rows for somebody who has no file yet. What a person is asked, and the
config's text, are in `callsheet/cli/init.py`.
"""
