"""Where media and reports go: a folder or a bucket on S3.

A file is written whole or not at all, and never over another one. It does not know the ledger. Begin with
`store.py`; `spool.py` verifies a download on its way there.
"""
