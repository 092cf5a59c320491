"""`python -m tests.systems.journal_as_windows FOLDER`: what runs do with journals, as on Windows."""

from __future__ import annotations

import sys
from pathlib import Path

import callsheet.ledger.journal  # noqa: F401 - and the libraries that it imports
from tests.systems.as_windows import become_windows


def main(folder: Path) -> None:
    become_windows(folder)
    from callsheet.ledger import journal
    from callsheet.records import Attempt, ModelType

    attempt = Attempt("key", 1, ModelType.IMAGE, "a", 1, "m")
    answers = [journal.PaidAnswer(attempt, name, batch="b") for name in ("one", "two")]
    own = journal.Journal(folder, "run")
    own.append(answers[0])
    [left] = journal.left_in(folder)
    assert (left.in_use, left.answers) == (True, (answers[0],))
    journal.remove(left)
    own.append(answers[1])
    assert [one.answers for one in journal.left_in(folder)] == [tuple(answers)], "it was not removed"
    own.written(answers[0])
    own.written(answers[1])
    assert journal.left_in(folder) == [], "the run itself removes it"

    own.append(answers[0])
    own.close()
    [left] = journal.left_in(folder)
    assert not left.in_use
    journal.remove(left)
    assert journal.left_in(folder) == []


if __name__ == "__main__":
    main(Path(sys.argv[1]))
