"""What users hold: the client, writers, transactions, batch reads, revisioned streams.

Not public: :mod:`pravega_wire` exports what users need of it.
"""
