"""Which proxy the environment names for a URL.

Python reads the variables, as for boto3. `NO_PROXY` has names with everything below them, and addresses, each
with a port if need be, or `*`; networks are not read. Requests to this machine itself never have a proxy.
"""

from __future__ import annotations

_LOOPBACK = ("localhost", "127.0.0.1", "::1")


def proxy_for(scheme: str, host: str, port: int) -> str | None:
    """The URL of the proxy for requests to a host (in ASCII, IPv6 without brackets), or None."""
    import urllib.request  # not when a program starts: 20 ms

    proxies = urllib.request.getproxies()  # the environment's; without any, those of macOS or Windows
    proxy = proxies.get(scheme) or proxies.get("all")
    if not proxy or host.lower() in _LOOPBACK or urllib.request.proxy_bypass(f"{host}:{port}"):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"
