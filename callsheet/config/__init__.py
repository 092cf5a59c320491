"""The config file: its schema, and how a YAML file becomes checked settings.

It knows what a setting may be, not what it is used for. Begin with `settings.py`.
"""
