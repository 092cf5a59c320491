"""Prompt rows and a catalogue -> a priced, frozen plan, and the quote.

Nothing here buys anything. Begin with `rates.py`, the price of one request. `jobs.py` prices a batch, each
distinct combination of parameters once (`distinct.py`); `plan.py` is the file in which it is frozen, and
`planning.py` makes and finds it. `quoting.py` compares it with the ledger, the budget and the balance, and
makes a quote (`quote.py`). `choice.py` has the jobs that a person names, and the pilot; `approval.py` says
when a person must approve. `references.py` reads the images that a request contains.
"""
