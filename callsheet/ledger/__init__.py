"""What was bought, what it cost, and where it is: the one record that money rests on.

It knows neither the service's HTTP nor the storage, and nothing writes to its tables but the methods of
`ledger.py`, where to begin. `transitions.py` has every change of a job's state, `claims.py` the reservation
of jobs, `policy.py` the rule of which jobs are bought, `leases.py` how a run takes over from a dead one, and
`doubts.py` which doubts a person means. `running_totals.py` has what batches and days have cost,
`spending.py` what one service took, `queries.py` everything else that is only read, `tables.py` the
schema.
"""
