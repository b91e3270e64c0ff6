"""``python -m pravega_wire``: the command ``pravega-wire``. Not public: it has nothing to import."""

from pravega_wire.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
