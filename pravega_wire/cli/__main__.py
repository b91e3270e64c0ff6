"""``python -m pravega_wire.cli``."""

from pravega_wire.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
