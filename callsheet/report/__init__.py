"""What the ledger says of a batch, as files that people and programs read.

It reads the ledger and writes files under `report.url`; it changes nothing. Begin with `report.py`.
"""
