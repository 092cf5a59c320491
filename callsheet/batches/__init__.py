"""A batch file -> prompt rows, and the rejects with their line numbers.

Reads CSV, TSV, Parquet and Excel, from disk or S3, a slice at a time. It knows the columns, but no model and
no price, and it writes nothing but temporary files. Begin with `read.py`; `sources.py` finds the files, and
`delimited.py`, `dialects.py` and `excel.py` read them.
"""
