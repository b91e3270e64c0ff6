"""A Pravega in memory that clients cannot tell from a real one: no Java, and nothing to download.

``store`` and ``controller`` are state machines without I/O: a clock and randomness are handed in, so that
sockets (``serving``) or a simulated network can carry them.

Not public: :func:`pravega_wire.testing.standalone` starts it.
"""
