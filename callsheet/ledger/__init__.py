"""What was bought, what it cost, and where it is: the one record that money rests on.

It knows neither the service's HTTP nor the storage, and no step writes to its tables but through `ledger.py`,
where to begin. `tables.py` has the schema, `queries.py` everything that is only read.
"""
