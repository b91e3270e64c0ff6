"""A web service that writes to and reads from streams; see ``app.py``."""
