"""Access to one segment: requests to the segment store, appending and reading.

Not public.
"""
