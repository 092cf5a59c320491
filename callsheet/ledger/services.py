"""Which service a batch belongs to. What was bought at one service cannot be polled or fetched at another.

Each function is part of a ledger transaction, on the connection it is given.
"""

from __future__ import annotations

from datetime import UTC, datetime
from urllib.parse import urlsplit

import sqlalchemy as sa

from callsheet.errors import OtherService
from callsheet.ledger.tables import batches


def check(connection: sa.Connection, batch: str, service: str) -> bool:
    """Whether the batch is bound to `service`; false where it is not bound to any.

    Raises:
        OtherService: it is bound to another one.
    """
    bound = of_batch(connection, batch)
    if bound is None:
        return False
    if _canonical(bound) != _canonical(service):
        raise OtherService(
            f"the ledger has bought the batch {batch!r} at {bound}, "
            f"and service.base_url is {_without_login(service)}",
            hint="Choose another batch name or another ledger.url. If the same service has a new address, "
            "run `callsheet ledger service-moved CONFIG` first.",
        )
    return True


def bind(connection: sa.Connection, batch: str, service: str) -> None:
    """Binds the batch to `service`, if it is not bound yet.

    Raises:
        OtherService: it is bound to another one.
    """
    if not check(connection, batch, service):
        connection.execute(
            batches.insert().values(batch=batch, service=_without_login(service), bound_at=datetime.now(UTC))
        )


def rebind(connection: sa.Connection, batch: str, service: str) -> None:
    """Binds the batch to `service`, whatever it was bound to."""
    connection.execute(batches.delete().where(batches.c.batch == batch))
    bind(connection, batch, service)


def of_batch(connection: sa.Connection, batch: str) -> str | None:
    """The base URL of the service that the batch is bound to; None where it is not bound to any."""
    service: str | None = connection.scalar(sa.select(batches.c.service).where(batches.c.batch == batch))
    return service


def elsewhere(connection: sa.Connection, service: str) -> list[str]:
    """The batches that are bound to another service than the one at this base URL."""
    rows = connection.execute(sa.select(batches.c.batch, batches.c.service))
    return [batch for batch, bound in rows if _canonical(bound) != _canonical(service)]


def _without_login(url: str) -> str:
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def _canonical(url: str) -> str:
    """The form in which two addresses of one service are equal."""
    parts = urlsplit(_without_login(url))
    return parts._replace(netloc=parts.netloc.lower(), path=parts.path.rstrip("/")).geturl()
