#!/usr/bin/env python3
"""Record the session at a terminal in ``docs/command-line-session.md`` again, on a new server.

The page's commands are run, and what they show takes the place of what is there. ``tests/integration/
test_recorded_session.py`` runs them too, and compares.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from pravega_wire.testing import standalone  # noqa: E402
from tests import recorded  # noqa: E402

PAGE = ROOT / "docs" / "command-line-session.md"


def main() -> int:
    with standalone() as server, tempfile.TemporaryDirectory() as directory:
        variables = {
            **os.environ,
            "PRAVEGA_CONTROLLER_URI": server.controller_uri,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
            "XDG_CONFIG_HOME": directory,
        }

        def record(exchange: recorded.Exchange) -> str:
            shown = recorded.run(exchange, Path(directory), variables)
            print(f"$ {exchange.command}\n{shown}", flush=True)
            return shown

        PAGE.write_text(recorded.rewritten(PAGE.read_text(encoding="utf-8"), record), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
