"""The backlot: the whole service of `docs/interface.md` on one machine, for trials, tests and demonstrations.

The modules, in the order in which a request passes through them:

    app         HTTP: keys, routes, headers, the error body
    wire        the shapes of requests and answers; strict about every field
    service     what the service does: keys, checks, charges, answers, signed URLs
    checks      what a schema cannot check            catalogue  models and prices
    accounts    rate windows, concurrency, balance    faults     errors on demand
    store       what a restart keeps                  media      images and videos
    dashboard   the pages for a browser

It shares no code with callsheet, so that one misreading of the interface cannot be in both.
"""
