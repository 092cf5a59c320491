"""The steps of the data's way, one Prefect task a file: read, price, submit, poll, download, record."""
