"""Exports: what a batch has stored, handed on as tables, as an image folder, or as shards of a data set.

Begin with `export.py`, which writes the tables too. `stored.py` says what an export has of each file, and
`destination.py` marks the folder or bucket that is written. Nothing here changes the ledger or the media.
"""
