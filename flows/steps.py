"""The steps of a batch as tasks of Prefect, for `steps.batch.generate` and `collect`."""

from callsheet.steps.batch import Steps
from tasks.approve import approve, show
from tasks.download import download
from tasks.poll import poll
from tasks.pressed import flow_run, heed, heeding
from tasks.price import price
from tasks.read import read
from tasks.record import record
from tasks.service_block import connect
from tasks.submit import submit


def _flow_run() -> str | None:
    run = flow_run()
    return str(run.id) if run else None


STEPS = Steps(
    connect=connect,
    read=read,
    price=price,
    show=show,
    approve=approve,
    submit=submit,
    poll=poll,
    download=download,
    record=record,
    beside=heeding,
    before=heed,
    flow_run=_flow_run,
)
