"""``python -m pravega_wire.testing``: the command ``pravega-wire-server``."""

from pravega_wire.cli.server import main

if __name__ == "__main__":
    raise SystemExit(main())
