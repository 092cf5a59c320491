"""The backlot: the whole service of `docs/interface.md` on one machine, for trials, tests and demonstrations.

The modules, in the order in which a request passes through them:

    app         HTTP: routes, headers, the error body, OpenAPI
    wire        the shapes of requests and answers; strict about every field
    service     what the service does: check, accept, charge, finish
    catalogue   models and prices                 accounts  rate windows, concurrency, balance
    safety      the list of refused words         faults    errors on demand
    store       what a restart keeps              signing   temporary download URLs
    media       images and videos, made in worker processes

It shares no code with callsheet, so that one misreading of the interface cannot be in both.
"""
