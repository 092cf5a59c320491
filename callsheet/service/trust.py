"""Whose certificates TLS trusts: the authorities that the environment names, or else the system's."""

from __future__ import annotations

import os
import ssl
import sys
from pathlib import Path

from callsheet.errors import ConfigError

_VARIABLES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE")


def tls_context() -> ssl.SSLContext:
    """A context for clients. Where several variables are set, the authorities of all of them are trusted.

    Raises:
        ConfigError: a variable names what is not there, or has no certificates.
    """
    named = {os.environ[name]: name for name in _VARIABLES if os.environ.get(name)}
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    for value, name in named.items():
        _load(context, name, value)
    return context if named else _of_the_system(context)


def _load(context: ssl.SSLContext, name: str, value: str) -> None:
    """Loads a file of certificates, or a folder of them, or folders as `SSL_CERT_DIR` lists them."""
    places = [place for text in value.split(os.pathsep) if (place := Path(text)).exists()]
    hint = f"{name} names the certificates that TLS trusts; without it, those of the system are trusted."
    if not places:
        raise ConfigError(f"{name} names {value}, which is not there", hint=hint)
    for place in places:
        try:
            folder = place.is_dir()
            context.load_verify_locations(None if folder else place, place if folder else None)
        except OSError as error:  # an SSLError is one, too
            why = error.strerror or error
            raise ConfigError(
                f"{name} names {place}, which is no file of certificates: {why}", hint=hint
            ) from None


def _of_the_system(context: ssl.SSLContext) -> ssl.SSLContext:
    """On Linux they are read once, where OpenSSL looks; truststore reads them for each connection: 24 ms."""
    context.load_default_certs()
    if sys.platform == "linux" and context.cert_store_stats()["x509_ca"]:
        return context
    import truststore

    return truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
