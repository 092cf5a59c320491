"""The service of the interface, from the client's side.

Begin with `client.py`, one method per endpoint; `models.py` has the wire types, `transport.py` the
connections. `verdicts.py` says what each failure means, and does no I/O.
"""
