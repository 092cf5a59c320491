"""Which proxy the environment names for a URL.

Python reads the variables, as for boto3. `NO_PROXY` has names with everything below them, and addresses, each
with a port if need be, or `*`; networks are not read. Requests to this machine itself never have a proxy.
"""

from __future__ import annotations

import os

_LOOPBACK = ("localhost", "127.0.0.1", "::1")


def proxy_for(scheme: str, host: str, port: int) -> str | None:
    """The URL of the proxy for requests to a host (in ASCII, IPv6 without brackets), or None."""
    import urllib.request  # not when a program starts: 20 ms

    proxies = urllib.request.getproxies()  # the environment's; without any, those of macOS or Windows
    proxy = proxies.get(scheme) or proxies.get("all")
    if not proxy or host.lower() in _LOOPBACK or urllib.request.proxy_bypass(f"{host}:{port}"):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def prepare_no_proxy() -> None:
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
