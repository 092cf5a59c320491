"""Callsheet's library: read, price, submit, poll, download, record. It never imports Prefect."""
