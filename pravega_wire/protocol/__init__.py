"""The segment-store wire protocol of v0.13.0 (wire version 16), sans-I/O: bytes in, commands out.

Not public, except for ``commands``.
"""
