"""The backlot: the whole service of `docs/interface.md` on one machine, for trials, tests and demonstrations.

The rooms, in the order in which a request walks through them:

    app         HTTP: routes, headers, the error envelope, OpenAPI
    wire        the shapes of requests and answers, strict to the field
    service     what the service knows and does: check, accept, charge, finish
    catalogue   models and prices             limits   windows and lanes
    safety      the word list                 faults   misbehaviour on demand
    store       what survives a restart       signing  temporary download URLs
    media       pictures and films, made in worker processes

It shares no code with callsheet, so that no misreading of the interface passes both.
"""
