"""The `http://` and `https://` URLs that requests are sent to."""

from __future__ import annotations

import base64
import functools
import re
from dataclasses import dataclass
from urllib.parse import quote, unquote, urlsplit

_PORTS = {"http": 80, "https": 443}
_PARTS = re.compile(r"([^/?#]*//[^/?#]*)([^?#]*)(\?[^#]*)?(?:#.*)?", re.DOTALL)
_HOST = re.compile(r"[A-Za-z0-9._:%-]+")
_VISIBLE = re.compile(r"[!-~]*")
"""What a request line can carry as it is."""


@dataclass(frozen=True, slots=True)
class Address:
    """The part of a URL before its path.

    Attributes:
        scheme: `http` or `https`.
        host: a name or an address, in ASCII; an IPv6 address without its brackets.
        port: the scheme's own where the URL names none.
        authority: host and port as the header `Host` has them.
        credentials: the user name and password before the host, as the header `Authorization` has them;
            empty where there are none.
    """

    scheme: str
    host: str
    port: int
    authority: str
    credentials: str


@dataclass(frozen=True, slots=True)
class Url:
    """A URL, taken apart.

    Attributes:
        address: where to connect.
        path: begins with a slash.
        query: with its question mark; empty where there is none.
    """

    address: Address
    path: str
    query: str


def parse_url(text: str) -> Url:
    """Takes a URL apart. Path and query stay as given, except for what a request line cannot carry.

    Raises:
        ValueError: it is not `http://` or `https://` with a host. The message does not repeat the URL, which
            may have a password.
    """
    parts = _PARTS.fullmatch(text)
    if parts is None:
        raise ValueError("the address does not begin with http:// or https://")
    return Url(_address(parts[1]), _visible(parts[2]) or "/", _visible(parts[3] or ""))


@functools.lru_cache
def _address(text: str) -> Address:
    parts = urlsplit(text)
    if parts.scheme not in _PORTS:
        raise ValueError("the address does not begin with http:// or https://")
    host = _ascii(parts.hostname or "")
    try:
        port = _PORTS[parts.scheme] if parts.port is None else parts.port
    except ValueError:
        raise ValueError("the address has a port that is not a number from 0 to 65535") from None
    authority = f"[{host}]" if ":" in host else host
    if port != _PORTS[parts.scheme]:
        authority = f"{authority}:{port}"
    credentials = ""
    if parts.username or parts.password:
        pair = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
        credentials = f"Basic {base64.b64encode(pair.encode()).decode()}"
    return Address(parts.scheme, host, port, authority, credentials)


def _ascii(host: str) -> str:
    try:
        name = host.encode("idna").decode()
        name.encode().decode("idna")
    except UnicodeError:
        name = ""
    if not _HOST.fullmatch(name):
        raise ValueError("the address has no host, or one that cannot be a host's name")
    return name


def _visible(text: str) -> str:
    return text if _VISIBLE.fullmatch(text) else quote(text, safe="".join(map(chr, range(0x21, 0x7F))))
