"""What each step of a batch does (submit, poll, download, record), and their order: begin with `batch.py`.

The steps know nothing of Prefect. In a flow run, `tasks/` makes a task of each, and adds what the Prefect UI
shows and asks.
"""
