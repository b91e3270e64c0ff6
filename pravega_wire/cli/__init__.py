"""The command line: ``python -m pravega_wire.cli COMMAND``. Each command is a module of its own.

Not public as a module: ``pravega-wire`` is the command.
"""
