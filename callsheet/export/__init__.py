"""Exports: what a batch has stored, handed on as tables, as an image folder, or as shards of a data set.

Begin with `export.py`, which marks the folder or bucket that is written, and writes the tables too.
`stored.py` says what an export has of each file. Nothing here changes the ledger or the media.
"""
