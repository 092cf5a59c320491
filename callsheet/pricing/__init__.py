"""Prompt rows and a catalogue -> a priced, frozen plan, and the quote.

Nothing here buys anything. Begin with `rates.py`, the price of one request. `jobs.py` prices a batch, each
distinct combination of parameters once; `plan.py` makes the plan in which it is frozen, and finds it again.
`bought.py` finds what the ledger has of it already, and what is bought again. `quote.py` compares it with the
ledger, the budget and the balance; what is said of it is in `present`. Whether it may be bought is decided
by the ledger's gate. `references.py` reads the images that a request contains, and makes those that must be
made first. `sources.py` has the rows of every kind of input, also of what another batch has kept. `claim.py`
makes sure that the ledger is the batch's. `guess.py` proposes a config for a batch file that has none, by
the prices of `compare.py`, which also has a first batch for somebody who has none.
"""
