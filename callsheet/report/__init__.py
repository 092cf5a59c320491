"""The report of a batch: files for people and other programs, made from the ledger.

Begin with `report.py`, which writes the files under `report.url`. `tables.py` makes the Parquet tables,
`counts.py` counts jobs, `problems.py` groups what went wrong, and `summary.py` is the result of a run.
`reconcile.py` compares the ledger with the service's own account. Nothing here changes the ledger.
"""
