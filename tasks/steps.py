"""The steps of a batch as tasks of Prefect, for `steps.batch.generate` and `collect`.

Each task does what the library's step does; the loop that calls them is the library's, too. What is no task:
to connect, to show the quote (it belongs to the page of the whole run), and to ask a person (`approve.py`).
"""

from __future__ import annotations

from callsheet.steps.batch import Steps
from tasks import artifacts
from tasks.approve import UI
from tasks.download import download
from tasks.poll import poll
from tasks.pressed import heed, heeding
from tasks.price import price
from tasks.read import read
from tasks.record import record, show_unchanged
from tasks.service_block import connect
from tasks.submit import submit

STEPS = Steps(
    connect=connect,
    read=read,
    price=price,
    show_quote=artifacts.show_quote,
    show_unchanged=show_unchanged,
    ui=UI.of_this_run,
    submit=submit,
    poll=poll,
    download=download,
    record=record,
    beside=heeding,
    before_portion=heed,
)
