"""The report of a batch: files for people and other programs, made from the ledger.

Begin with `report.py`, which writes the files under `report.url`; `sidecars.py` writes those beside the
stored files. `summary.py` is the result of a run, and of `status`; what is said of both is in `present`.
`plots.py` draws. `against_account.py` compares the ledger with the service's own account, `claim.py` what
came with what was ordered and charged. `month.py` has the costs of a month, `production.py` those of shots
over several batches, `pilot.py` what a pilot has made, `evidence.py` that of doubts, `remedies.py` what
mends a run. Nothing here changes the ledger, but that a claim was sent (`claim.py`) and which files were
removed (`tidy.py`), as a person has said.
"""
