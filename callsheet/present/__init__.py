"""What is said of a batch, once: by the commands, in the Prefect UI, in the log and to programs.

Begin with `page.py`: what a page is made of. `console.py` and `markdown.py` show one; JSON is
`records.as_json`. `amounts.py` has the words of a sentence about money, `reasons.py` why a run asks and why
the gate stops it, and `allowances.py` what may be spent: a purse, a limit that is near, a
changed setting. The others have one subject each, and make pages, sentences and figures of its record:
`proposed.py` of what `init` proposes, `priced.py` of a quote and `as_read.py` of how its file was read,
`asked.py` of a question, `under_way.py` of a run at work, `results.py` of its end, `status.py` of how a batch
stands, `stories.py` of rows, `accounts.py` of doubts and the reconciliation, `owed.py` of a claim, `spent.py`
of a month, `morning.py` of all batches, `catalogue.py` of the models, `what_next.py` of the commands that
come next. Nothing here reads, asks or decides.

Where something fails, the error says what it is in its own words, where it is found (`errors.py`).
"""
