"""Opens each page of the built site in a headless Chromium, without a network, and takes some pictures.

Each page is opened as wide as a notebook and as narrow as a phone. A message on the browser's console, a
diagram that is not drawn, a page without its heading, and anything that does not fit are errors.
``--pictures FOLDER`` only takes pictures of the pages named after it: wide, on a phone, and dark.
"""

from __future__ import annotations

import argparse
import base64
import functools
import http.server
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SITE = ROOT / "site"
PICTURES = {
    "home.png": "",
    "guide.png": "start/first-events/",
    "reference.png": "reference/writing/",
    "explained.png": "architecture/",
    "benchmarks.png": "benchmarks/",
}
"""Files in ``docs/pictures/``, and the pages that they show."""

WIDE, PHONE = (1280, 900), (390, 844)

SECONDS = 120.0

_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
    # No page may need another host.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    "--remote-debugging-pipe",
)  # fmt: skip

_DRAWN = """
document.readyState === "complete" && !document.querySelector("pre.mermaid")
  && [...document.images].every(each => each.complete)
"""

_PROBLEMS = """
(() => {
  const found = [];
  const wide = innerWidth > 1000;
  if (document.querySelector("pre.mermaid")) found.push("a diagram is not drawn");
  if (!document.querySelector("h1")) found.push("there is no heading");
  for (const each of document.images) if (!each.naturalWidth) found.push(`no picture: ${each.src}`);
  const page = document.scrollingElement;
  if (page.scrollWidth > innerWidth) found.push(`the page is ${page.scrollWidth} px wide`);
  for (const each of document.querySelectorAll("article *")) {
    const { overflowX } = getComputedStyle(each);
    // On a phone, what can be moved with a finger is all right.
    const cut = wide ? overflowX !== "visible" : overflowX === "hidden" || overflowX === "clip";
    if (!cut || !each.clientWidth || each.scrollWidth <= each.clientWidth + 2) continue;
    const words = each.innerText.split("\\n").reduce((a, b) => (b.length > a.length ? b : a), "").trim();
    const name = each.tagName.toLowerCase();
    found.push(`${each.scrollWidth} px in ${each.clientWidth} (${name}): ${words.slice(0, 80)}`);
  }
  return found;
})()
"""


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


class Browser:
    """A headless Chromium with one page, told what to do through a pipe (the Chrome DevTools Protocol)."""

    def __init__(self, chromium: str, profile: str) -> None:
        ours, theirs = os.pipe(), os.pipe()

        def connected() -> None:
            # Chromium reads from 3 and writes to 4; these numbers may be taken by the pipes themselves.
            reads, writes = os.dup(theirs[0]), os.dup(ours[1])
            os.dup2(os.dup(reads), 3)
            os.dup2(os.dup(writes), 4)

        self._process = subprocess.Popen(
            [chromium, *_FLAGS, f"--user-data-dir={profile}"], stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, close_fds=False, preexec_fn=connected,
        )  # fmt: skip
        os.close(theirs[0])
        os.close(ours[1])
        self._from, self._to = open(ours[0], "rb"), open(theirs[1], "wb")  # noqa: SIM115
        self._session: str | None = None
        self._number = 0
        self.said: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")
        # Each page is a first visit: the theme keeps the scheme of the page before.
        self.call("Page.addScriptToEvaluateOnNewDocument", source="try { localStorage.clear() } catch {}")

    def call(self, method: str, **parameters: object) -> dict[str, Any]:
        """Call a method of the protocol; what it returned."""
        self._number += 1
        message: dict[str, object] = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        self._to.write(json.dumps(message).encode() + b"\0")
        self._to.flush()
        while True:
            answer = self._read()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                result: dict[str, Any] = answer["result"]
                return result

    def _read(self) -> dict[str, Any]:
        text = bytearray()
        while (byte := self._from.read(1)) != b"\0":
            if not byte:
                raise RuntimeError("Chromium has ended")
            text += byte
        message: dict[str, Any] = json.loads(text)
        found = message.get("params", {})
        match message.get("method"):
            case "Runtime.consoleAPICalled":
                self.said.append(" ".join(str(each.get("value", "")) for each in found["args"]))
            case "Runtime.exceptionThrown":
                self.said.append(str(found["exceptionDetails"].get("exception", {}).get("description")))
            case "Log.entryAdded":
                self.said.append(f"{found['entry']['text']} {found['entry'].get('url', '')}")
        return message

    def evaluate(self, expression: str) -> Any:
        """The value of an expression in the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        return answer["result"].get("value")

    def resize(self, size: tuple[int, int], dark: bool = False) -> None:
        """Be a notebook's window, or a phone; in the scheme that the system asks for."""
        width, height = size
        phone = width < 600
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, mobile=phone,
            deviceScaleFactor=2 if phone else 1,
        )  # fmt: skip
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def open(self, url: str) -> None:
        """Show a page, and wait until it is drawn."""
        self.call("Page.navigate", url="about:blank")
        self.said.clear()
        self.call("Page.navigate", url=url)
        until = time.monotonic() + SECONDS
        while not (self.evaluate("location.href") != "about:blank" and self.evaluate(_DRAWN)):
            if time.monotonic() > until:
                return  # problems() says what is missing
            time.sleep(0.02)
        # What the theme does in the next frames: labels of tabs, tables that roll.
        self.call(
            "Runtime.evaluate", awaitPromise=True,
            expression="new Promise(done => setTimeout(() => requestAnimationFrame(done), 60))",
        )  # fmt: skip

    def problems(self) -> list[str]:
        """A sentence for each thing that is wrong with the opened page."""
        return [f"console: {each}" for each in self.said] + list(self.evaluate(_PROBLEMS) or ())

    def picture(self, file: Path, whole: bool = False) -> None:
        """Write what is shown, or the whole page, to a PNG file."""
        options: dict[str, object] = {"format": "png"}
        if whole:
            size = self.call("Page.getLayoutMetrics")["cssContentSize"]
            options |= {
                "captureBeyondViewport": True,
                "clip": {
                    "x": 0,
                    "y": 0,
                    "width": size["width"],
                    "height": min(size["height"], 12000),
                    "scale": 1,
                },
            }
        file.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", **options)["data"]))

    def close(self) -> None:
        """End it."""
        self._to.close()
        self._process.terminate()
        self._process.wait()
        self._from.close()


@contextmanager
def site(chromium: str) -> Iterator[tuple[Browser, str]]:
    """A browser, and the address of the built site's first page."""
    handler = functools.partial(_Quiet, directory=str(SITE))
    with (
        http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server,
        tempfile.TemporaryDirectory(prefix="look-", ignore_cleanup_errors=True) as profile,
    ):
        threading.Thread(target=server.serve_forever, daemon=True).start()
        browser = Browser(chromium, profile)
        try:
            yield browser, f"http://127.0.0.1:{server.server_port}/"
        finally:
            browser.close()
            server.shutdown()


def take(browser: Browser, root: str, folder: Path, pages: list[str]) -> None:
    """Three pictures of each page: wide, on a phone, and dark."""
    folder.mkdir(parents=True, exist_ok=True)
    for page in pages:
        name = page.strip("/").replace("/", "-") or "home"
        for kind, size, dark in (("wide", WIDE, False), ("phone", PHONE, False), ("dark", WIDE, True)):
            browser.resize(size, dark)
            browser.open(root + page)
            browser.picture(folder / f"{name}-{kind}.png", whole=True)


def check(browser: Browser, root: str) -> list[str]:
    """Every page at both widths; the pictures of ``docs/pictures/``."""
    pages = sorted(path.relative_to(SITE).parent.as_posix() for path in SITE.rglob("index.html"))
    found = []
    for number, page in enumerate(pages, 1):
        address = "" if page == "." else f"{page}/"
        for size in (WIDE, PHONE):
            browser.resize(size)
            browser.open(root + address)
            found += [f"/{address} at {size[0]} px: {each}" for each in browser.problems()]
        if number % 10 == 0 or number == len(pages):
            print(f"[look] {number} of {len(pages)} pages", flush=True)
    folder = ROOT / "docs" / "pictures"
    for picture, address in PICTURES.items():
        browser.resize(WIDE)
        browser.open(root + address)
        browser.picture(folder / picture)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="look.py", description=__doc__.splitlines()[0])
    parser.add_argument("--pictures", type=Path, metavar="FOLDER", help="only take pictures of the pages")
    parser.add_argument("pages", nargs="*", help="addresses, such as start/install/")
    chosen = parser.parse_args()
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        print("error: this needs Chromium (Debian: apt-get install chromium)", file=sys.stderr)
        return 1
    with site(chromium) as (browser, root):
        if chosen.pictures is not None:
            take(browser, root, chosen.pictures, chosen.pages)
            return 0
        found = check(browser, root)
    for each in found:
        print(each, file=sys.stderr)
    if found:
        print(f"error: {len(found)} things are wrong with the site's pages", file=sys.stderr)
        return 1
    print("[look] all pages are drawn, and everything fits; pictures are in docs/pictures/")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
