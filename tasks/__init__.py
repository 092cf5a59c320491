"""What a Prefect flow adds to the library: steps as tasks, artifacts, events, approval and suspension."""

import logging

from callsheet.errors import known_error


def _in_plain_words(record: logging.LogRecord) -> bool:
    """Spares us the trace of errors that Callsheet raises on purpose: they say all in their message.

    And Prefect logs each end but Completed as an error; what a person has done, or is waited for, is none.
    """
    if record.exc_info and record.exc_info[1] and known_error(record.exc_info[1]):
        record.exc_info = None
    if record.getMessage().startswith(("Finished in state Suspended", "Finished in state Cancelled")):
        record.levelno, record.levelname = logging.INFO, logging.getLevelName(logging.INFO)
    return True


for _name in ("prefect.flow_runs", "prefect.task_runs"):
    logging.getLogger(_name).addFilter(_in_plain_words)
