"""The first hour of a user: does what the pages of "Start" say, in order, with nothing but what they install.

An empty folder, a new environment, the wheel of this checkout where a page says ``pip install pravega-wire``,
and a server that the pages start. The other packages come from the package index.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests import docs_blocks  # noqa: E402
from tests.docs_blocks import BlockError, Runner, first_pages, read  # noqa: E402

LEFT_OUT = ("PRAVEGA_", "PYTHON", "VIRTUAL_ENV", "JAVA_HOME", "SPARK_")


def variables(wheel: Path, environment: Path) -> dict[str, str]:
    """The environment of somebody who has opened a terminal."""
    found = {name: value for name, value in os.environ.items() if not name.startswith(LEFT_OUT)}
    # scripts/docs has put its own environment first.
    places = [each for each in found["PATH"].split(os.pathsep) if Path(each) != environment]
    # pip finds the wheel beside what the index has, and takes this version only.
    constraints = wheel.parent / "constraints.txt"
    constraints.write_text(f"pravega-wire=={wheel.name.split('-')[1]}\n")
    links = f"{wheel.parent} {found.get('PIP_FIND_LINKS', '')}".strip()
    return {
        **found,
        "PATH": os.pathsep.join(places),
        "PIP_CONSTRAINT": str(constraints),
        "PIP_FIND_LINKS": links,
    }


def main() -> int:
    docs_blocks.SECONDS = 1800.0  # packages are downloaded
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="first-hour-") as name:
        folder = Path(name)
        build = [
            sys.executable,
            "-m",
            "pip",
            "wheel",
            "--quiet",
            "--no-deps",
            "--wheel-dir",
            str(folder / "wheel"),
        ]
        subprocess.run([*build, str(ROOT)], check=True)
        (wheel,) = (folder / "wheel").glob("*.whl")
        home = folder / "empty"
        home.mkdir()
        python = Path(sys.executable).parent
        runner = Runner(home, variables(wheel, python), python="python", walking=True, remembers=True)
        try:
            for page in first_pages():
                begun = time.monotonic()
                runner.run(read(page))
                print(f"[first hour] {page}: {time.monotonic() - begun:.0f} s", flush=True)
        except BlockError as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
        finally:
            runner.close()
    print(f"[first hour] all pages of Start worked, in {(time.monotonic() - started) / 60:.1f} minutes")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
