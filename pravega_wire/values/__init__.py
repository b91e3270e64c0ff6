"""Values of Pravega that need no server: names, cuts, positions, policies, settings.

Not public: :mod:`pravega_wire` has the names for users.
"""
