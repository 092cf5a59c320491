"""Prompt rows and a catalogue -> a priced, frozen plan, and the quote.

Nothing here buys anything. Begin with `rates.py`, the price of one request; `jobs.py` prices a whole batch,
`plan.py` writes it down, and `quote.py` compares it with the ledger, the budget and the balance.
"""
