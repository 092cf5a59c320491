"""When the next submission may leave, learned from the service's answers (INTERFACE 8).

Begin with `limits.py`: a `Turn` is the permission for one submission, and `AccountLimits` gives them out.
`breaker.py` pauses the buying while the service fails. Nothing here sends a request or reads a body, and all
time comes from a clock that is passed in.
"""
