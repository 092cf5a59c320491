"""The Prefect flows: order and concurrency only."""
