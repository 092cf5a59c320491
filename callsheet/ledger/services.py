"""Which service a batch belongs to, and what was learned of the limits of a service.

A batch belongs to one service, its base URL, and nothing that is counted for it comes from another one.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

import sqlalchemy as sa

from callsheet.errors import OtherService
from callsheet.ledger.tables import attempts, batches
from callsheet.ledger.tables import learned as learned_table
from callsheet.records import State

IS_SUBMITTED = sa.and_(attempts.c.submitted_at.is_not(None), attempts.c.state != State.PLANNED)
"""Attempts that were submitted. One that the service did not take is planned again, and keeps its time. In a
batch's table it is `standing.SUBMITTED`.
"""


def check(connection: sa.Connection, batch: str, service: str) -> bool:
    """Whether the batch is bound to `service`; false where nothing of it was sent yet, to whichever service.

    Raises:
        OtherService: jobs of it were sent to another one.
    """
    bound = of_batch(connection, batch)
    if bound is not None and is_same(bound, service):
        return True
    if bound is None or not _has_attempts(connection, batch, IS_SUBMITTED):
        return False
    raise _other_service(f"the ledger has sent jobs of the batch {batch!r} to {bound}", service)


def bind(connection: sa.Connection, batch: str, service: str, run_id: str) -> None:
    """Binds the batch to `service`: the run is about to send jobs of it there.

    Raises:
        OtherService: jobs of it were sent to another one, or another run is about to send some.
    """
    if check(connection, batch, service):
        return
    if _has_attempts(connection, batch, attempts.c.state == State.PLANNED, attempts.c.run_id != run_id):
        raise _other_service(
            f"another run is about to send jobs of the batch {batch!r} to another service", service
        )
    _bind_to(connection, batch, service)


def rebind(connection: sa.Connection, batch: str, service: str) -> list[str]:
    """The batch's service has moved to this address, and with it all its batches in the ledger: these.

    One account pays for all of them: apart, what some have spent would be missing from its balance.
    """
    moved = {batch}
    if old := of_batch(connection, batch):
        moved |= {*connection.scalars(sa.select(batches.c.batch))} - {*elsewhere(connection, old)}
    for moved_batch in moved:
        _bind_to(connection, moved_batch, service)
    return sorted(moved)


def _bind_to(connection: sa.Connection, batch: str, service: str) -> None:
    row = {"service": without_login(service), "bound_at": datetime.now(UTC)}
    if connection.execute(batches.update().where(batches.c.batch == batch), row).rowcount == 0:
        connection.execute(batches.insert(), row | {"batch": batch})


def of_batch(connection: sa.Connection, batch: str) -> str | None:
    """The base URL of the service that the batch is bound to; None where it is not bound to any."""
    service: str | None = connection.scalar(sa.select(batches.c.service).where(batches.c.batch == batch))
    return service


def elsewhere(connection: sa.Connection, service: str) -> list[str]:
    """The batches that are bound to another service than the one at this base URL."""
    bound = connection.execute(sa.select(batches.c.batch, batches.c.service))
    return [batch for batch, address in bound if not is_same(address, service)]


def learned(connection: sa.Connection, _: str, service: str) -> dict[str, Any] | None:
    """What runs have learned of the limits of a service; None where nothing."""
    query = sa.select(learned_table.c.limits).where(learned_table.c.service == service)
    limits: dict[str, Any] | None = connection.scalar(query)
    return limits


def learn(connection: sa.Connection, _: str, service: str, limits: dict[str, Any]) -> None:
    """Remembers what was learned of the limits of a service."""
    connection.execute(learned_table.delete().where(learned_table.c.service == service))
    connection.execute(learned_table.insert().values(service=service, limits=limits))


def is_same(address: str, other_address: str) -> bool:
    """Whether two addresses are those of one service."""
    return _canonical(address) == _canonical(other_address)


def _has_attempts(connection: sa.Connection, batch: str, *conditions: sa.ColumnElement[bool]) -> bool:
    """Whether the batch has such attempts."""
    return bool(connection.scalar(sa.select(sa.exists().where(attempts.c.batch == batch, *conditions))))


def _other_service(reason: str, service: str) -> OtherService:
    return OtherService(
        f"{reason}, and service.base_url is {without_login(service)}",
        hint="Choose another batch name or another ledger.url. If the same service has a new address, "
        "run `callsheet ledger service-moved CONFIG` first.",
    )


def without_login(url: str) -> str:
    """A base URL as it may be shown: without user and password."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def _canonical(url: str) -> str:
    """The form in which two addresses of one service are equal."""
    parts = urlsplit(without_login(url))
    return parts._replace(netloc=parts.netloc.lower(), path=parts.path.rstrip("/")).geturl()
