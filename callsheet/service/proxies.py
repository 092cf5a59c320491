"""Which proxy the environment names for a URL, and which hosts `NO_PROXY` takes out.

`NO_PROXY` has names with everything below them, addresses, networks, or `*`. httpx reads it in its own way:
it fails on a network of IPv6, in this project's client and in Prefect's, and knows no other network. So the
client asks `proxy_for`, and every program calls `put_in_order` when it starts.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from ipaddress import ip_address, ip_network
from urllib.parse import urlsplit

_LOOPBACK = ("localhost", "127.0.0.1", "::1")


def proxy_for(scheme: str, host: str, port: int) -> str | None:
    """The URL of the proxy for requests to a host (in ASCII, IPv6 without brackets), or None.

    This machine itself never has one.
    """
    import urllib.request  # not when a program starts: 20 ms

    proxies = urllib.request.getproxies()  # the environment's; without any, those of macOS or Windows
    proxy = proxies.get(scheme) or proxies.get("all")
    if not proxy or host.lower() in _LOOPBACK or _is_direct(host, port):
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
    entries = [each for each in map(_for_httpx, _no_proxy()) if each] + [*_LOOPBACK]
    with suppress(ValueError):  # not a URL: Prefect says so
        server = urlsplit(os.environ.get("PREFECT_API_URL", ""))
        port = server.port or (443 if server.scheme == "https" else 80)
        if server.hostname and _is_direct(server.hostname, port):
            entries.append(server.hostname)
    os.environ["no_proxy"] = os.environ["NO_PROXY"] = ",".join(dict.fromkeys(entries))


def _no_proxy() -> list[str]:
    """The entries, also as `_for_httpx` writes them."""
    text = os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or ""
    return [entry for entry in re.split(r"[\s,]+", re.sub(r"all://|[\[\]]", "", text.lower())) if entry]


def _for_httpx(entry: str) -> str:
    """An entry as httpx can read it; empty where nobody can."""
    if re.fullmatch(r"[\w.*-]+(?::\d+|/\d+)?", entry):
        return entry
    with suppress(ValueError):
        network = ip_network(entry, strict=False)  # of IPv6
        whole = network.num_addresses == 1
        address = network.network_address
        return str(address) if whole else f"all://[{address}]/{network.prefixlen}"
    return ""


def _is_direct(host: str, port: int) -> bool:
    """Whether `NO_PROXY` has a host; what cannot be read there is left out, as curl does."""
    host = host.lower().rstrip(".")
    for entry in _no_proxy():
        with suppress(ValueError):  # one of them is a name
            if ip_address(host) in ip_network(entry, strict=False):
                return True
        name, _, only = entry.partition(":")
        below = f".{name.lstrip('*.').rstrip('.')}"
        if entry == "*" or (only in ("", str(port)) and below != "." and f".{host}".endswith(below)):
            return True
    return False
