"""The ledger: what was bought, what it cost, where it is, and what persons say of it.

A run uses it through `Ledger` of `ledger.py`, where to begin. `states.py` has what the answers of the
service and of the storage change, and `writing.py` which state may follow which: the one place that writes
attempts. `sums.py` has what they come to. `gate.py` is the one place that says whether a job may leave: by
what persons were shown and have said (`words.py`), by what somebody may spend unasked (`purses.py`), by the
newest limit (`changes.py`), and by how the batch is charged (`charges.py`). `walls.py` finds limits that
are near. `marks.py` has what persons say of files, `paid_back.py` what came back, `origins.py` what is made
from which file, `costs.py` what a month came to. `leases.py`, `journal.py` and `takeover.py` have how a run
takes over from a dead one, `settling.py` what a person decides of doubts, `services.py` which service a
batch belongs to, `spending.py` what that took, `policy.py` which jobs a run buys, and `queries.py` what is
read of it all. It knows nothing of the service's HTTP or of the storage, and words no question and no stop:
that is `present/reasons.py`.
"""
