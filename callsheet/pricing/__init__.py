"""Prompt rows and a catalogue -> a priced, frozen plan, and the quote.

Nothing here buys anything. Begin with `rates.py`, the price of one request. `jobs.py` prices a batch, each
distinct combination of parameters once; `plan.py` makes the plan in which it is frozen, and finds it again.
`quoting.py` compares it with the ledger, the budget and the balance, and makes a quote (`quote.py`).
`choice.py` has the jobs that a person names, and the pilot; `approval.py` says when a person must approve.
`references.py` reads the images that a request contains.
"""
