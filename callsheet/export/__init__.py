"""What is stored, or kept, handed on: each kind of export has a module, and `export.py` chooses.

An export goes to a folder or a bucket that has nothing else, so that what is there is the export. A file is
complete or absent there, so what an interrupted export has written is not written again. Nothing here
changes the ledger or the media.
"""
