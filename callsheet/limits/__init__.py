"""When the next submission may leave, learned from the service's answers (INTERFACE 8).

It sends nothing and reads no response body; time comes from a clock that is passed in. Begin with
`limits.py`; `pace.py` counts requests per window, and `breaker.py` pauses the buying while the service fails.
"""
