"""``python -m examples.web [--port 8000]``; the controller and the scope come from the environment."""

from __future__ import annotations

import argparse

import uvicorn

from examples.web.app import create_app
from pravega_wire import PravegaConfig


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--scope", default="web")
    chosen = parser.parse_args()
    # Otherwise a shutdown would wait for listening clients, which never disconnect on their own.
    uvicorn.run(
        create_app(PravegaConfig.from_defaults(scope=chosen.scope)),
        port=chosen.port,
        timeout_graceful_shutdown=5,
    )


if __name__ == "__main__":
    main()
