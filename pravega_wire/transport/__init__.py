"""The only place that opens sockets: connections, pools, retries (trio).

Not public.
"""
