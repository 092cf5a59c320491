"""What `callsheet init` proposes: a config for a batch file that has none, or a first batch file.

Nothing here buys or writes anything. Begin with `guess.py`: it prices the rows on each model, when `form.py`
has said how the file is read, and `fields.py` which column is for which field, by what each holds
(`callsheet/batches/judgements.py`). `starter.py` has a few rows for somebody who has no file yet. What a
person is asked is in `callsheet/cli/dialog.py`, and the config's text in `config_text.py`.
"""
