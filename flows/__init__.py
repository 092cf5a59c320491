"""The Prefect flows, and what deploys and starts them."""

from callsheet.service.proxies import put_in_order

put_in_order()  # before Prefect makes a client of its own
