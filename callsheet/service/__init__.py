"""The client of the service (INTERFACE).

Begin with `client.py`, one method per endpoint. `answers.py` and `failures.py` read what comes back into the
types of `models.py` and `callsheet.errors`; `transport.py` has the connections, which are httpx's, and
`proxies.py` and `trust.py` what the environment says about them. `verdicts.py` decides what each failure
means; it does no I/O. Nothing here repeats a paid request.
"""
