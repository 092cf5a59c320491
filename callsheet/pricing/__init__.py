"""Prompt rows and a catalogue -> a priced, frozen plan, and the quote. Nothing here buys anything.

The way of a row, of which `plan.make_plan` has the steps; each module imports only those before it:

1. `requests.py`: what is sent for the row. Before it `config_values.py` checks the config itself;
   `parameters.py` fills in what the model takes, `references.py` reads the images, and makes those that must
   be made first.
2. `rates.py`: what that costs.
3. `bought.py`: what the ledger has of it already, and what is bought again.
4. `plan.py`: all of it, frozen in a file, and found again.
5. `quote.py`: the plan next to the ledger, the budget and the balance, for the jobs of a `choice.py`. Whether
   they may be bought is decided by the ledger's gate; what is said of it is in `present`.

Besides: `sources.py` has the rows of every kind of input, also those of another batch, whose plan it reads
(`originals.py`); `from_rows.py` goes from them to the quote in one go. `compare.py` has the prices of the
rows on each model.
"""
