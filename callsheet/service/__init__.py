"""The client of the service (INTERFACE).

Begin with `client.py`, one method per endpoint. `answers.py` reads what comes back into the types of
`models.py` and `callsheet.errors`; `transport.py` has the connections, which are httpx's, and which proxy the
environment names. `verdicts.py` decides what each failure means; it does no I/O. Nothing here repeats a paid
request.
"""
