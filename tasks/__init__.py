"""What a Prefect flow adds to the library: steps as tasks, artifacts, events, approval and suspension."""

import logging

from callsheet.errors import known_error


def _plain_words(record: logging.LogRecord) -> bool:
    """Errors that Callsheet raises on purpose say all in their message: the log spares us their trace."""
    if record.exc_info and record.exc_info[1] and known_error(record.exc_info[1]):
        record.exc_info = None
    return True


def _a_person_is_no_error(record: logging.LogRecord) -> bool:
    """Prefect logs each end but Completed as an error; what a person has done, or is waited for, is none."""
    if record.getMessage().startswith(("Finished in state Suspended", "Finished in state Cancelled")):
        record.levelno, record.levelname = logging.INFO, logging.getLevelName(logging.INFO)
    return True


logging.getLogger("prefect.flow_runs").addFilter(_a_person_is_no_error)
for _name in ("prefect.flow_runs", "prefect.task_runs"):
    logging.getLogger(_name).addFilter(_plain_words)
