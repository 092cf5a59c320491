"""Where media and reports are stored: a folder, or a bucket on S3.

A file is stored complete or not at all, and media never replace another file. Does not know the ledger. Begin
with `store.py`; `spool.py` verifies a download before it is stored, in the work folder on this machine;
`names.py` makes names safe.
"""
