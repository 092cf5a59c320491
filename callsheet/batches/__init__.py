"""A batch file -> prompt rows, and the rejects with their line numbers.

Reads text, JSON, Parquet and Excel, from disk or S3, as whole tables, and lists folders of images. Knows the
columns, but not the models or prices, and writes nothing but temporary files. Begin with `read.py`.
`formats.py` finds the files and reads them, with a module for each kind; `columns.py` says which column is
which, and what a file's columns seem to hold.
"""
