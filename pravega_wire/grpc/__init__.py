"""Unary gRPC calls over HTTP/2, without I/O: bytes in, finished calls out.

Not public.
"""
