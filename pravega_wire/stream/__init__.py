"""The objects that users hold: the client, writers, transactions, readers, revisioned streams, tables.

This package is not public. Import its public names from :mod:`pravega_wire`.
"""
