"""One segment each: requests to the segment store, appending, reading.

Not public.
"""
