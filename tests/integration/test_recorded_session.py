"""The session at a terminal in ``docs/command-line-session.md``, run again and compared."""

from __future__ import annotations

from pathlib import Path

from pravega_wire.testing import PravegaServer
from tests import recorded
from tests.docs_blocks import ROOT
from tests.integration.test_docs import variables

PAGE = ROOT / "docs" / "command-line-session.md"


def test_the_terminal_shows_what_the_page_says(pravega_server: PravegaServer, tmp_path: Path) -> None:
    found = {**variables(pravega_server), "XDG_CONFIG_HOME": str(tmp_path)}
    session = recorded.parse(PAGE.read_text(encoding="utf-8"))
    assert len(session) > 15
    shown = [recorded.run(each, tmp_path, found) for each in session]
    assert [(each.command, recorded.masked(text)) for each, text in zip(session, shown, strict=True)] == [
        (each.command, recorded.masked(each.shown)) for each in session
    ]


def test_only_what_differs_from_run_to_run_is_masked() -> None:
    masked = recorded.masked
    assert masked("answered in 82ms; 3 scopes are visible") == masked("answered in 1.2s; 1 scope is visible")
    assert masked(" ─── \n  LAG  ") == masked(" ─────\n  LAG")
    assert masked("2 events, 67 bytes") != masked("2 events, 68 bytes")
    assert masked("scope a was created") != masked("scope b was created")
    assert masked("at 2026-01-31T12:00:00.5Z") == masked("at 2027-01-31T12:00:01Z")


def test_commands_answers_and_interruptions_are_run_as_recorded(tmp_path: Path) -> None:
    page = """# Page

```text
$ printf 'Sure? [y/N]: '; \\
  read it; echo "it was $it"
Sure? [y/N]: y
it was y
$ trap 'echo caught; exit' INT; echo one; sleep 60
one
^Ccaught
```

```text
not a session
```

```text
$ test -t 1 && test -t 0 && true
```
"""
    session = recorded.parse(page)
    assert [each.command.split()[0] for each in session] == ["printf", "trap", "test"]
    # What was recorded before is not looked at, but for the answer and the interruption.
    found = recorded.rewritten(page, lambda each: recorded.run(each, tmp_path, {"PATH": "/usr/bin:/bin"}))
    assert found == page
