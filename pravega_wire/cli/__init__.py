"""The command line ``pravega-wire COMMAND``. Each command is in its own module.

Not public: ``pravega-wire`` is the public command.
"""
