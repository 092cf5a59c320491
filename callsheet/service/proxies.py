"""Which proxy the environment names for a URL, and which hosts `NO_PROXY` takes out.

`NO_PROXY` is read as curl reads it: names with everything below them, addresses, networks, `*`; a port may
follow. httpx reads it in its own way and fails on a network of IPv6, in this project's client and in
Prefect's. So the client asks `proxy_for`, and every program calls `put_in_order` when it starts.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from urllib.parse import urlsplit

_LOOPBACK = ("localhost", "127.0.0.1", "::1")
# [address]:port or name:port; the scheme and the brackets are those that `Direct.for_httpx` writes.
_ENTRY = re.compile(r"(?:all://)?(?:\[([^\]]+)\]|([^:/\[\]]+))(?::([0-9]{1,5}))?(/[0-9]+)?")
_NAME = re.compile(r"[A-Za-z0-9_.-]+")


@dataclass(frozen=True, slots=True)
class Direct:
    """Hosts that are reached without a proxy: an entry of `NO_PROXY`."""

    hosts: str | IPv4Network | IPv6Network  # addresses; or a name in ASCII, with all names below it; or `*`
    port: int | None = None  # None for every port

    def has(self, host: str, port: int) -> bool:
        """Whether a host is one of them; an IPv6 address has no brackets."""
        if self.port not in (None, port):
            return False
        if not isinstance(self.hosts, str):
            try:
                return ip_address(host) in self.hosts
            except ValueError:
                return False
        return self.hosts == "*" or f".{host.lower().rstrip('.')}".endswith(f".{self.hosts}")

    def for_httpx(self) -> str:
        """The same as httpx can read it. Of a network it takes only the first address out."""
        port = "" if self.port is None else f":{self.port}"
        if isinstance(self.hosts, str):
            return f"{self.hosts}{port}"
        address = str(self.hosts.network_address)
        length = "" if self.hosts.num_addresses == 1 else f"/{self.hosts.prefixlen}"
        if self.hosts.version == 6 and (port or length):
            address = f"all://[{address}]"
        return f"{address}{port}{length}"


def proxy_for(scheme: str, host: str, port: int) -> str | None:
    """The URL of the proxy for requests to a host (in ASCII, IPv6 without brackets), or None.

    This machine itself never has one.
    """
    import urllib.request  # not when a program starts: 20 ms

    proxies = urllib.request.getproxies()  # the environment's; without any, those of macOS or Windows
    proxy = proxies.get(scheme) or proxies.get("all")
    if not proxy or host.lower() in _LOOPBACK or any(direct.has(host, port) for direct in _no_proxy()):
        return None
    if not urllib.request.getproxies_environment() and urllib.request.proxy_bypass(host):
        return None  # macOS and Windows have exceptions of their own
    return proxy if "://" in proxy else f"http://{proxy}"


def put_in_order() -> None:
    """Writes `NO_PROXY` anew, so that every httpx of this process and of its children can read it.

    This machine is added. So is Prefect's server where an entry has it that httpx does not understand.
    """
    if not any(name.lower().endswith("_proxy") for name in os.environ):
        return
    entries = list(_no_proxy())
    own = list(_LOOPBACK)
    with suppress(ValueError):  # not a URL: Prefect says so
        server = urlsplit(os.environ.get("PREFECT_API_URL", ""))
        port = server.port or (443 if server.scheme == "https" else 80)
        if server.hostname and any(direct.has(server.hostname, port) for direct in entries):
            own.append(server.hostname)
    texts = dict.fromkeys([*(direct.for_httpx() for direct in entries), *own])
    os.environ["no_proxy"] = os.environ["NO_PROXY"] = ",".join(texts)


def _no_proxy() -> Iterator[Direct]:
    """The entries of `NO_PROXY`; one that cannot be read is left out, as curl does."""
    for text in re.split(r"[\s,]+", os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or ""):
        if direct := _direct(text):
            yield direct


def _direct(text: str) -> Direct | None:
    if text == "*":
        return Direct("*")
    parts = _ENTRY.fullmatch(text)
    address, name, port, length = parts.groups() if parts else (text, None, None, None)
    with_port = None if port is None else int(port)
    try:
        return Direct(ip_network(f"{address or name}{length or ''}", strict=False), with_port)
    except ValueError:
        pass
    try:
        ascii_name = (name or "").lstrip("*").strip(".").encode("idna").decode().lower()
    except UnicodeError:
        return None
    return Direct(ascii_name, with_port) if _NAME.fullmatch(ascii_name) and not length else None
