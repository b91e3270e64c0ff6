"""A trio loop in a thread of its own, on which the blocking and the asyncio client stand.

Not public.
"""
