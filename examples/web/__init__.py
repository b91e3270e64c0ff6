"""A web service over a stream: see ``app.py``."""
