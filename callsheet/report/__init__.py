"""The report of a batch: files for people and other programs, made from the ledger.

Begin with `report.py`, which writes the files under `report.url`. `summary.py` is the result of a run, and
how a batch stands; what is said of both is in `present`. `plots.py` draws. `against_account.py` compares the
ledger with the service's own account. Nothing here changes the ledger.
"""
