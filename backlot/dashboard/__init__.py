"""The dashboard: pages for a browser that show what the service's books hold, and change what an account may.

Pages are made on the server (Jinja2), live parts are fetched again by htmx while a page is open, and nothing
happens while nobody looks. It counts nothing itself, and the interface does not know of it: without a session
every path of it is an unknown path to a program. Begin reading in `routes`.
"""
