"""The Prefect flows: order and concurrency only."""

from callsheet.service.proxies import put_in_order

put_in_order()  # before Prefect makes a client of its own
