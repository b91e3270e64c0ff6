"""The command line: ``python -m pravega_wire.cli COMMAND``. Each command is a module of its own."""
