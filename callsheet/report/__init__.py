"""The report of a batch: files for people and other programs, made from the ledger.

Begin with `report.py`, which writes the files under `report.url`. `parquet_tables.py` makes the tables,
`counts.py` counts jobs, `summary.py` is the result of a run, and `details.py` what of it is for people alone.
`reconcile.py` compares the ledger with the service's own account. Nothing here changes the ledger.
"""
