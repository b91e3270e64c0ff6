"""The command line ``pravega-wire COMMAND``. Each command is in its own module.

Not public as modules: use the command ``pravega-wire``.
"""
