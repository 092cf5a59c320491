"""Exports: what a batch has stored, handed on as tables, as an image folder, or as shards of a data set.

Begin with `export.py`. Each kind has a module; `files.py` reads what is stored, and `destination.py` looks
after the folder or bucket that is written. Nothing here changes the ledger or the media.
"""
