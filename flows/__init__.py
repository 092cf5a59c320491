"""The Prefect flows, and what deploys and starts them."""

from callsheet.service.proxies import prepare_no_proxy

prepare_no_proxy()  # before Prefect makes a client of its own
