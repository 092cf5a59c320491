"""The connections: one for each request in flight, kept for the next request.

They are Callsheet's own. httpx takes eight times the CPU, a third of what a whole job cost. aiohttp does
not tell a request that never left from one that may have been carried out; for a paid POST that is money.
Nothing here depends on the interface, and nothing limits the number of requests: `callsheet.limits` does.
"""

from __future__ import annotations

import asyncio
import functools
import math
import os
import ssl
import urllib.request
from collections import defaultdict

import certifi

from callsheet.errors import ConfigError
from callsheet.service.connection import Connection, Request, Response, Unsent
from callsheet.service.urls import Address, parse_url

KEEPALIVE = 2.0
"""Seconds for which an idle connection may be used again.

Common servers close idle connections after 5 s or more. A POST that is sent while the server closes the
connection fails as if it might have been carried out, so a connection is dropped well before that.
"""

_NEXT_ADDRESS = 0.25  # seconds after which a name's next address is tried beside the one before (RFC 8305)
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


class Connections:
    """Takes the free connection that was used last for each request, or opens another.

    A connection is free again when its response is closed; one that broke is never used again.
    """

    def __init__(self) -> None:
        self._free: defaultdict[Address, list[Connection]] = defaultdict(list)

    async def send(
        self, request: Request, *, connect: float, part: float, whole: float = math.inf
    ) -> Response:
        """Sends one request, and waits for the head of its answer. Close the response.

        Args:
            request: the request.
            connect: seconds to wait for a connection.
            part: seconds to wait for each part of the answer, and while a part of the request is sent.
            whole: seconds to wait in all.

        Raises:
            Unsent: no connection could be made: not a byte of the request has left this machine.
            ConfigError: the environment names a proxy whose scheme is not supported.
            Exception: the request may have reached the server.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + whole
        address = request.url.address
        connection = self._take(address)
        if connection is None:
            try:
                async with asyncio.timeout(min(connect, whole)):
                    connection = await self._open(address)
            except ConfigError:
                raise
            except Exception as error:
                raise Unsent from error
        return await connection.send(request, part=part, until=until)

    def _take(self, address: Address) -> Connection | None:
        free = self._free[address]
        oldest = asyncio.get_running_loop().time() - KEEPALIVE
        while free:
            connection = free.pop()
            if connection.free_since > oldest and connection.usable():
                return connection
            connection.abort()
        return None

    async def _open(self, address: Address) -> Connection:
        proxy = environment_proxy(address)
        if proxy is None:
            return await self._connect(address, address)
        connection = await self._connect(proxy, address)
        connection.proxy_credentials = proxy.credentials
        if address.scheme == "http":
            connection.to_proxy = True
            return connection
        try:
            await connection.connect_through(address)
            transport = await asyncio.get_running_loop().start_tls(
                connection.transport, connection, self._tls, server_hostname=address.host
            )
            assert transport is not None  # noqa: S101 - it is None only where the loop closes
            connection.transport = transport
        except BaseException:
            connection.abort()
            raise
        return connection

    async def _connect(self, to: Address, for_requests_to: Address) -> Connection:
        loop = asyncio.get_running_loop()
        free = self._free[for_requests_to]
        connect = functools.partial(loop.create_connection, lambda: Connection(free), to.host, to.port)
        if isinstance(loop, asyncio.BaseEventLoop):  # another program's uvloop cannot do it
            connect = functools.partial(connect, happy_eyeballs_delay=_NEXT_ADDRESS)
        if to.scheme == "https":
            connect = functools.partial(connect, ssl=self._tls, server_hostname=to.host)
        pair: tuple[object, Connection] = await connect()
        return pair[1]

    @functools.cached_property
    def _tls(self) -> ssl.SSLContext:
        """Trusts certifi's authorities, or those of `SSL_CERT_FILE` or `SSL_CERT_DIR`."""
        file, folder = os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")
        context = ssl.create_default_context(
            cafile=file or (None if folder else certifi.where()), capath=None if file else folder
        )
        context.set_alpn_protocols(["http/1.1"])
        return context

    async def aclose(self) -> None:
        """Closes the free connections; the others close with their responses."""
        for free in self._free.values():
            while free:
                free.pop().abort()
        await asyncio.sleep(0)  # asyncio closes the sockets in the loop's next round


def environment_proxy(address: Address) -> Address | None:
    """The proxy that the environment names (`HTTPS_PROXY`, `ALL_PROXY`, `NO_PROXY`, ...), if any.

    This machine's own addresses never go through a proxy.

    Raises:
        ConfigError: it is neither an `http://` nor an `https://` proxy.
    """
    proxies = urllib.request.getproxies()
    proxy = proxies.get(address.scheme) or proxies.get("all")
    if not proxy or address.host in _LOOPBACK or urllib.request.proxy_bypass(address.host):
        return None
    if "://" not in proxy:
        proxy = f"http://{proxy}"
    try:
        return parse_url(proxy).address
    except ValueError:
        scheme = proxy.split(":")[0]
        raise ConfigError(
            f"the environment names a proxy with {scheme}://, which is not supported"
            if scheme not in ("http", "https")
            else "the environment names a proxy whose address is not valid",
            hint="Use an http:// or https:// proxy, or name the service's host in NO_PROXY.",
        ) from None
