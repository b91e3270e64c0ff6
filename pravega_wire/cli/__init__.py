"""The command line ``pravega-wire COMMAND``. Each command is in its own module.

The modules are not public.
"""
