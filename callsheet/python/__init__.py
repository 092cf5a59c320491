"""What `import callsheet` offers, behind the functions of `callsheet/__init__.py`.

Begin with `calls.py`. It prepares what a call gets and hands it to the same steps as the commands; it has no
order of steps of its own. `dataframes.py` reads tables and takes marks, and `notebook.py` shows progress.
"""
