"""Signed, temporary download URLs (INTERFACE 4.8): an HMAC of id, index and expiry."""

from __future__ import annotations

import hashlib
import hmac

from backlot.errors import Refused


def signature(secret: bytes, generation_id: str, index: str, exp: str) -> str:
    """The signature, 64 hex digits; only who has the secret can compute it."""
    return hmac.new(secret, f"{generation_id}/{index}?{exp}".encode(), hashlib.sha256).hexdigest()


def signed_path(secret: bytes, generation_id: str, index: int, exp: int) -> str:
    """The path and query of a download; `exp` is in Unix seconds."""
    sig = signature(secret, generation_id, str(index), str(exp))
    return f"/v2/downloads/{generation_id}/{index}?exp={exp}&sig={sig}"


def check(secret: bytes, generation_id: str, index: str, *, exp: str, sig: str, now: float) -> None:
    """Accepts only a URL that was signed here and has not expired. Compares in constant time.

    Raises:
        Refused: 403 for an altered URL, 410 for one that has expired.
    """
    if not hmac.compare_digest(signature(secret, generation_id, index, exp).encode(), sig.encode()):
        raise Refused("invalid_parameter", "The URL's signature is wrong.", "sig", status=403)
    if now >= int(exp):
        raise Refused("not_found", "The URL has expired.", "exp", status=410)
