"""The ledger's schema, version by version, as Alembic's revisions. Each file stays as it is for ever.

A change of `tables.py` is a new file in `versions/`, and one more in `SCHEMA_VERSION`. It only adds: an older
Callsheet that has the ledger open can go on.
"""
