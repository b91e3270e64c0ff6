"""The segment store's wire protocol, version 0.13.0 (wire version 16), without I/O: bytes in, commands out.

Not public, except for ``commands``.
"""
