"""Opens each page of the built site in a headless Chromium, without a network, and takes some pictures.

A message on the browser's console, a diagram that is not drawn, and a page without its heading are errors.
"""

from __future__ import annotations

import functools
import http.server
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SITE = ROOT / "site"
PICTURES = {
    "home.png": "",
    "guide.png": "start/first-events/",
    "reference.png": "reference/writing/",
    "explained.png": "architecture/",
}
"""Files in ``docs/pictures/``, and the pages that they show."""

SECONDS = 120.0

_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
    # No page may need another host.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    "--enable-logging=stderr", "--virtual-time-budget=10000", "--window-size=1280,900",
)  # fmt: skip


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


def opened(chromium: str, url: str, *flags: str) -> tuple[str, str]:
    """What the browser printed, and what it logged."""
    with tempfile.TemporaryDirectory(prefix="look-") as profile:
        done = subprocess.run(
            [chromium, *_FLAGS, f"--user-data-dir={profile}", *flags, url],
            capture_output=True, text=True, timeout=SECONDS, check=True,
        )  # fmt: skip
    return done.stdout, done.stderr


def problems(name: str, page: str, log: str) -> list[str]:
    """A sentence for each thing that is wrong with an opened page."""
    found = [f"{name}: console: {each}" for each in re.findall(r"CONSOLE[^\]]*\] (.*)", log)]
    # The theme puts a drawn diagram into a div in the place of the pre.
    if re.search(r'<pre[^>]*class="mermaid"', page):
        found.append(f"{name}: a diagram is not drawn")
    if not re.search(r"<h1\b", page):
        found.append(f"{name}: there is no heading")
    return found


def main() -> int:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        print("error: this needs Chromium (Debian: apt-get install chromium)", file=sys.stderr)
        return 1
    handler = functools.partial(_Quiet, directory=str(SITE))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        root = f"http://127.0.0.1:{server.server_port}/"
        pages = sorted(path.relative_to(SITE).parent.as_posix() for path in SITE.rglob("index.html"))
        found = []
        for number, page in enumerate(pages, 1):
            address = "" if page == "." else f"{page}/"
            found += problems(address or "/", *opened(chromium, root + address, "--dump-dom"))
            if number % 10 == 0 or number == len(pages):
                print(f"[look] {number} of {len(pages)} pages", flush=True)
        folder = ROOT / "docs" / "pictures"
        folder.mkdir(exist_ok=True)
        for picture, address in PICTURES.items():
            opened(chromium, root + address, f"--screenshot={folder / picture}")
        server.shutdown()
    for each in found:
        print(each, file=sys.stderr)
    if found:
        print(f"error: {len(found)} things are wrong with the site's pages", file=sys.stderr)
        return 1
    print(f"[look] all pages are drawn; pictures are in {folder.relative_to(ROOT)}/")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
