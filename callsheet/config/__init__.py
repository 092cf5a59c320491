"""The config file: its schema, and YAML with the line of every key, for error messages.

It knows what a setting may be, not what it is used for. Begin with `settings.py`.
"""
