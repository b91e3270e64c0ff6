"""The objects that users hold: the client, writers, transactions, readers, revisioned streams, tables.

Not public: import the public names from :mod:`pravega_wire`.
"""
