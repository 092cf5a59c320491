"""What `import callsheet` offers, behind the functions of `callsheet/__init__.py`.

Begin with `calls.py`. It prepares what a call gets and hands it to the same steps as the commands; it has no
order of steps of its own. `rows.py` makes a batch file of a table in memory, `tables.py` reads the report's
tables, and `notebook.py` shows progress.
"""
