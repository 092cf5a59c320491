"""httpx for servers of this machine, which speak no TLS: `http.get(url)`, `http.Client(base_url=...)`.

httpx itself reads all authorities that it would trust, for each client and each single request: 20 ms of CPU.
"""

from __future__ import annotations

from functools import partial

import httpx

Client = partial(httpx.Client, verify=False)
AsyncClient = partial(httpx.AsyncClient, verify=False)
request = partial(httpx.request, verify=False)
get = partial(httpx.get, verify=False)
head = partial(httpx.head, verify=False)
post = partial(httpx.post, verify=False)
