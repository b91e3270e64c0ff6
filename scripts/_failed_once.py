"""Tests that fail in a whole run and pass alone: which may run once more, and what is said of them.

Tests with servers and many processes may fail because they share two cores. A few of them run once more,
alone. A test that passes then, or what it tests, still has a defect: it must be on a list, which may not
grow.
"""

from __future__ import annotations

import json
import os
import tomllib
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from pathlib import Path

from _bootstrap import ROOT

FAILED_ONCE = "tests/failed-once.toml"
ONCE_MORE = ("--last-failed", "--last-failed-no-failures", "none")
_SECOND_TRIES = 6
_MOST_FAILED_ONCE = 3


def failed_once(cache: Path, *, but_not: tuple[str, ...] = ()) -> list[str]:
    """The failed tests of the last run, if they may run once more.

    :param cache: pytest's ``cache_dir`` of that run.
    :param but_not: beginnings of the names of tests that may not.
    """
    try:
        tests = list(json.loads((cache / "v" / "cache" / "lastfailed").read_text()))
    except (OSError, ValueError):
        return []  # nothing ran
    few = 0 < len(tests) <= _SECOND_TRIES
    return tests if few and not any(each.startswith(but_not) for each in tests) else []


def reasons(report: Path) -> list[str]:
    """A line for each failed test of a run: its name and the first line of what it said.

    :param report: what pytest's option ``--junitxml`` wrote.
    """
    try:
        cases = ElementTree.parse(report).iter("testcase")
    except (OSError, ElementTree.ParseError):
        return []  # the run did not reach its end
    return [
        f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name')}: "
        f"{(each.get('message') or each.text or '').strip().partition(chr(10))[0]}"
        for case in cases
        for each in case
        if each.tag in ("failure", "error")
    ]


def report(once: Sequence[str]) -> bool:
    """Print a sentence for each test that failed and then passed alone; return whether so many may."""
    known = tomllib.loads((ROOT / FAILED_ONCE).read_text()).get("test", [])
    words, fails = judged(once, [each["name"] for each in known], in_ci=os.environ.get("CI") == "true")
    for each in words:
        print(each, flush=True)
    return not fails


def judged(once: Sequence[str], known: Sequence[str], *, in_ci: bool) -> tuple[list[str], bool]:
    """Judge the tests that failed beside other tests and passed alone.

    :param known: the tests on the list.
    :param in_ci: whether one that is not on the list is only reported: nobody can add it during the run.
    :return: a sentence for each, and whether the run fails.
    """
    new = [each for each in once if each not in known]
    words = [
        f"warning: {each} failed beside other tests and passed alone: look for the reason above, and "
        + (f"add it to {FAILED_ONCE} with the date and what was seen" if each in new else "mend it")
        for each in once
    ]
    number = len(known) + len(new)
    if number > _MOST_FAILED_ONCE:
        words.append(
            f"error: {number} tests are on {FAILED_ONCE} or belong there, and at most {_MOST_FAILED_ONCE} "
            "may: mend some of them"
        )
    return words, number > _MOST_FAILED_ONCE or (bool(new) and not in_ci)
