"""The Prefect flows, and what deploys and starts them."""

import os

_LOOPBACK = ("localhost", "127.0.0.1", "::1")


def reach_this_machine_without_proxy() -> None:
    """Lets Prefect's client, in this process and its children, start and reach a server on this machine.

    That client is httpx's: it goes to this machine through the proxy where `NO_PROXY` does not say otherwise,
    and fails on a network of IPv6 (which OrbStack writes there) and on an address in brackets.
    """
    if not any(name.lower().endswith("_proxy") for name in os.environ):
        return
    text = os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or ""
    entries = [entry for part in text.split(",") if (entry := part.strip()) and not _fails(entry)]
    entries = ["*"] if "*" in entries else [*entries, *_LOOPBACK]
    os.environ["no_proxy"] = os.environ["NO_PROXY"] = ",".join(dict.fromkeys(entries))


def _fails(entry: str) -> bool:
    """Whether httpx fails on this entry of `NO_PROXY`."""
    return entry.count(":") > 1 and any(mark in entry for mark in "/[")


reach_this_machine_without_proxy()  # before Prefect makes a client of its own
