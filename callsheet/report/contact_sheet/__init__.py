"""The contact sheet: a page under `report.url` that shows every job of a batch as a card.

Begin with `sheet.py`, which keeps the page up to date while a run is under way. `cards.py` reads the jobs
from plan and ledger, and `thumbnails.py` has the small images made by `decoder.py`, a process of its own.
`assets/` is the page itself: plain HTML, CSS and JavaScript, without a build step.

A contact sheet is for looking, and for marks: it hands them to its server (`callsheet/reviewing/`), or saves
them as `marks.csv`. It writes nothing to the ledger, and a file that cannot be shown never ends a run.
"""
