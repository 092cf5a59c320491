"""What was bought, what it cost, and where it is: the one record that money rests on.

It knows neither the service's HTTP nor the storage, and everything is written and read through the methods of
`ledger.py`, where to begin. `transitions.py` and `media.py` have what the answers of the service and of the
storage change, `doubts.py` what persons decide, and `writing.py` which state may follow which: the one place
that writes attempts and keeps the totals. `budget.py` has the bound of a batch, with what persons say
(`changes.py`, `approvals.py`) and what was charged (`charges.py`); `claims.py` the reservation of jobs,
`policy.py` the rule of which are bought, `leases.py` and `takeover.py` how a run takes over from a dead one.
`running_totals.py` has what batches and days have cost, `spending.py` what one service took, `queries.py`
everything else that is only read, `tables.py` the schema.

A function that is given a connection is part of a transaction on it.
"""
