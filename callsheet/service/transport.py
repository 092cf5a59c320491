"""The connections: httpx's, one for each request in flight; and TLS.

A submission has a connection of its own, which no other request has used or will use: a server may close a
used one at any moment, also while the next request is on its way, and nobody can tell then whether that was
carried out. A new connection that fails before the request is sent has cost nothing. What only reads may use
a connection that another one has left.

They are httpx's transports and not its clients, which would write each URL, with its signature, to the log,
send cookies back, and search all connections of a pool for each request. Nothing here depends on the
interface, and nothing limits the number of requests: `callsheet.limits` does.
"""

from __future__ import annotations

import asyncio
import functools
import os
import ssl
import sys
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from callsheet.errors import ConfigError

KEEPALIVE = 2.0
"""Seconds for which an idle connection may be used again; common servers close it after 5 s or more."""

_TRUSTED = ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE")  # what names authorities
_TRUSTS_NOBODY = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # plain HTTP needs none
_PORTS = {"http": 80, "https": 443}
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_BEFORE = (  # what httpx raises before a request is sent, and only then
    httpx.ConnectError,
    httpx.ConnectTimeout,
    httpx.PoolTimeout,
    httpx.ProxyError,
    httpx.UnsupportedProtocol,
)

Origin = tuple[str, str, int]
"""Scheme, host in ASCII, port."""


class Unsent(Exception):
    """Not a byte of the request has left this machine. `proxy` is the proxy's URL, where there is one."""

    def __init__(self, proxy: str | None = None) -> None:
        super().__init__()
        self.proxy = proxy


class Connections:
    """Takes the free transport that was used last for each GET, or makes another; a new one for a POST.

    Each has one connection. A GET's is free again when its exchange has ended as it should, and otherwise
    never; after `keepalive` idle seconds it connects anew.
    """

    def __init__(self, keepalive: float = KEEPALIVE) -> None:
        self._keepalive = keepalive
        self._free: defaultdict[Origin, list[httpx.AsyncHTTPTransport]] = defaultdict(list)

    def prepare(self, url: httpx.URL) -> None:
        """Makes the first transport for a server, and does not connect. Raises as `send` does."""
        origin = _origin(url)
        self._free[origin].append(self._new(*origin))

    @asynccontextmanager
    async def send(
        self, request: httpx.Request, *, connect: float, within: float, part: float | None = None
    ) -> AsyncIterator[httpx.Response]:
        """Sends one request; the head of its answer. What is not read of the body is not waited for.

        Args:
            request: what to send.
            connect: seconds to wait for a connection, through a proxy too.
            within: seconds from then on for the whole answer, or with `part` for its head.
            part: seconds to wait for each part of the body.

        Raises:
            Unsent: no connection could be made.
            ConfigError: the environment names a proxy or authorities that cannot be used.
            Exception: the request may have reached the server.
        """
        origin = _origin(request.url)
        reads = request.method == "GET"
        free = self._free[origin]
        transport = free.pop() if reads and free else self._new(*origin)
        progress = _Progress(within)
        request.extensions = {"timeout": {"read": part}, "trace": progress.follow}
        try:
            async with asyncio.timeout(connect) as progress.limit:
                response = await transport.handle_async_request(request)
                response.request = request
                if part is not None:
                    progress.limit.reschedule(None)
                try:
                    yield response
                finally:
                    await response.aclose()
        except BaseException as error:
            await transport.aclose()
            unsent = isinstance(error, Exception) and progress.is_unsent(error)
            if isinstance(error, TimeoutError) and not error.args:
                error.args = (
                    f"no connection within {connect:g} s" if unsent else f"no answer within {within:g} s",
                )
            if unsent:
                raise Unsent(proxy_of(request.url)) from error
            raise
        if reads and _ended_cleanly(transport):
            free.append(transport)
        else:
            await transport.aclose()

    def _new(self, scheme: str, host: str, port: int) -> httpx.AsyncHTTPTransport:
        address = proxy_for(scheme, host, port)
        return httpx.AsyncHTTPTransport(
            verify=self._tls if scheme == "https" else _TRUSTS_NOBODY,
            trust_env=False,
            limits=httpx.Limits(max_connections=1, keepalive_expiry=self._keepalive),
            proxy=self._proxy(address) if address else None,
        )

    def _proxy(self, address: str) -> httpx.Proxy:
        hint = "Use an http://, https:// or socks5:// proxy, or name the service's host in NO_PROXY."
        try:
            proxy = httpx.Proxy(address)
        except (httpx.InvalidURL, ValueError):
            scheme = address.partition("://")[0]
            raise ConfigError(
                f"the environment names a {scheme}:// proxy that cannot be used", hint=hint
            ) from None
        if not proxy.url.raw_host:
            raise ConfigError("the environment names a proxy without a host", hint=hint)
        if proxy.url.scheme == "https":
            proxy.ssl_context = self._tls
        return proxy

    @functools.cached_property
    def _tls(self) -> ssl.SSLContext:
        return tls_context()

    async def aclose(self) -> None:
        """Closes the free connections; the others close with their exchanges."""
        for free in self._free.values():
            while free:
                await free.pop().aclose()


class _Progress:
    """What httpcore tells of one request as it goes. The answer has `within` seconds from its first byte on.

    A request is unsent only where its connecting was seen and its sending was not, or where httpx says so:
    an error of a proxy, of SOCKS or of TLS can come in any type. What is not known counts as sent.
    """

    def __init__(self, within: float) -> None:
        self.limit: asyncio.Timeout
        self._within = within
        self._connecting = self._begun = False

    async def follow(self, event: str, info: Mapping[str, Any]) -> None:
        """httpcore calls this before and after each step (its extension `trace`)."""
        if self._begun:
            return
        request = info.get("request")
        asks_proxy = request is not None and request.method == b"CONNECT"
        if asks_proxy or event.startswith(("connection.", "proxy.", "socks.")):
            self._connecting = True
        elif request is not None:
            self._begun = True
            self.limit.reschedule(asyncio.get_running_loop().time() + self._within)

    def is_unsent(self, error: Exception) -> bool:
        """Whether a request that failed so has never left."""
        return not self._begun and (self._connecting or isinstance(error, _BEFORE))


def _ended_cleanly(transport: httpx.AsyncHTTPTransport) -> bool:
    """Whether nothing came after the end of the answer: httpcore takes it for the answer to the next request.

    Only its parser knows. Where it cannot be asked any more, no connection is used twice.
    """
    try:
        for connection in transport._pool.connections:
            layer: Any = connection
            while not hasattr(layer, "_h11_state"):
                layer = layer._connection
            if layer._h11_state.trailing_data[0]:
                return False
    except AttributeError:
        return False
    return True


def _origin(url: httpx.URL) -> Origin:
    return url.scheme, url.raw_host.decode(), url.port or _PORTS.get(url.scheme, 0)


def proxy_of(url: httpx.URL) -> str | None:
    """The URL of the proxy through which requests to an address go, or None."""
    return proxy_for(*_origin(url))


def proxy_for(scheme: str, host: str, port: int) -> str | None:
    """The URL of the proxy that the environment names for requests to a host, or None.

    Python reads the variables, as for boto3. `NO_PROXY` has names with everything below them, and addresses,
    each with a port if need be, or `*`; networks are not read. Requests to this machine itself never have a
    proxy. The host is in ASCII, an IPv6 address without brackets.
    """
    import urllib.request  # not when a program starts: 20 ms

    proxies = urllib.request.getproxies()  # the environment's; without any, those of macOS or Windows
    proxy = proxies.get(scheme) or proxies.get("all")
    if not proxy or host.lower() in _LOOPBACK or urllib.request.proxy_bypass(f"{host}:{port}"):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def tls_context() -> ssl.SSLContext:
    """Trusts the authorities that the environment names, of all variables that are set; or else the system's.

    Raises:
        ConfigError: a variable names what is not there, or has no certificates.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    variables = {os.environ[name]: name for name in _TRUSTED if os.environ.get(name)}
    for value, name in variables.items():
        # A file of certificates, or a folder of them, or folders as `SSL_CERT_DIR` lists them.
        places = [place for text in value.split(os.pathsep) if (place := Path(text)).exists()]
        hint = f"{name} names the certificates that TLS trusts; without it, those of the system are trusted."
        if not places:
            raise ConfigError(f"{name} names {value}, which is not there", hint=hint)
        for place in places:
            try:
                folder = place.is_dir()
                context.load_verify_locations(None if folder else place, place if folder else None)
            except OSError as error:  # an SSLError is one, too
                problem = f"{name} names {place}, which is no file of certificates: {error.strerror or error}"
                raise ConfigError(problem, hint=hint) from None
    if variables:
        return context
    context.load_default_certs()
    # On Linux they are read once, where OpenSSL looks; truststore reads them for each connection: 24 ms.
    if sys.platform == "linux" and context.cert_store_stats()["x509_ca"]:
        return context
    import truststore

    return truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
