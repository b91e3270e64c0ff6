"""Unary gRPC calls over HTTP/2, sans-I/O: bytes in, finished calls out.

Not public.
"""
