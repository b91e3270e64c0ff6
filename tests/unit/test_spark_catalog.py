"""Names of views, and patterns, without a session."""

from __future__ import annotations

import re
from typing import Any
from unittest.mock import MagicMock

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyspark")

from pyspark.sql import SparkSession

from pravega_wire import PravegaConfig, ScalingPolicy, ScopedStream
from pravega_wire.errors import InvalidArgumentError, ScopeNotEmptyError
from spark_adapter import catalog as module
from spark_adapter.catalog import PravegaCatalog, _matching, quoted, view_name

CONFIG = PravegaConfig.from_defaults(controller_uri="tcp://127.0.0.1:1", env={})
NAMES = st.from_regex(r"[A-Za-z0-9.\-]{1,20}", fullmatch=True)
STREAMS = st.builds(ScopedStream, NAMES, NAMES)


class Session:
    """The catalog of a session that has some views."""

    def __init__(self, *views: str) -> None:
        self.has = {quoted(each) for each in views}

    def tableExists(self, name: str) -> bool:
        return name in self.has


def catalog(*views: str) -> PravegaCatalog:
    session: Any = MagicMock(spec=SparkSession)
    session.catalog = Session(*views)
    return PravegaCatalog(session, CONFIG)


@given(STREAMS, STREAMS)
def test_full_names_are_those_of_the_streams(one: ScopedStream, other: ScopedStream) -> None:
    assert ScopedStream.parse(view_name(one)) == one
    assert (view_name(one) == view_name(other)) == (one == other)


@given(STREAMS)
def test_plain_names_need_no_quotes(stream: ScopedStream) -> None:
    name = view_name(stream, "plain")
    assert re.fullmatch(r"\w+__\w+", name, re.ASCII)
    assert len(name) == len(str(stream)) + 1


@given(st.text(min_size=1))
def test_quoted_names_end_where_they_end(name: str) -> None:
    inside = quoted(name)[1:-1]
    assert "`" not in inside.replace("``", "")
    assert inside.replace("``", "`") == name


@given(st.lists(STREAMS, unique=True, max_size=8), st.sampled_from(["full", "plain"]))
def test_each_stream_has_a_name_or_a_clash_is_named(streams: list[ScopedStream], names: Any) -> None:
    lower = [view_name(each, names).lower() for each in streams]
    if len(set(lower)) < len(lower):
        with pytest.raises(InvalidArgumentError, match="the same name"):
            catalog()._named(streams, names, False)
    else:
        assert list(catalog()._named(streams, names, False).values()) == streams


def test_names_that_clash_name_both_streams() -> None:
    streams = [ScopedStream("a", "b.c"), ScopedStream("a", "b-c"), ScopedStream("A", "B.C")]
    with pytest.raises(InvalidArgumentError, match=r"views of a/b\.c and a/b-c .* 'a__b_c'"):
        catalog()._named(streams, "plain", False)
    with pytest.raises(InvalidArgumentError, match=r"views of a/b\.c and A/B\.C .* 'A/B\.C'"):
        catalog()._named(streams, "full", False)
    with pytest.raises(InvalidArgumentError, match=r"'a/b\.c' exists already"):
        catalog("a/b.c")._named(streams[:1], "full", False)
    assert list(catalog("a/b.c")._named(streams[:1], "full", True)) == ["a/b.c"]


def test_a_function_names_views() -> None:
    stream = ScopedStream("a", "b")
    assert view_name(stream, lambda each: each.name * 2) == "bb"
    wrong: Any
    for wrong in ("short", None, 7):
        with pytest.raises(InvalidArgumentError, match="names must be"):
            view_name(stream, wrong)
    for wrong in (lambda each: "", lambda each: " ", lambda each: None):
        with pytest.raises(InvalidArgumentError, match="for a/b"):
            view_name(stream, wrong)


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        (None, ["a.b", "axb", "B"]),
        ("*", ["a.b", "axb", "B"]),
        ("A.B", ["a.b"]),
        ("a*|b", ["a.b", "axb", "B"]),
        (" b ", ["B"]),
        ("", []),
        ("[ab]", []),
    ],
)
def test_patterns_are_those_of_sql(pattern: str | None, found: list[str]) -> None:
    assert list(filter(_matching(pattern), ["a.b", "axb", "B"])) == found


def test_a_database_with_contents_is_dropped_with_cascade(monkeypatch: pytest.MonkeyPatch) -> None:
    client = MagicMock()
    client.__enter__.return_value = client
    client.delete_scope.side_effect = ScopeNotEmptyError(
        "scope a has stream b: use recursive=True", scope="a"
    )
    monkeypatch.setattr(module, "HeldClient", lambda config: client)
    with pytest.raises(ScopeNotEmptyError, match=r"^scope a has stream b: use cascade=True$") as caught:
        catalog().drop_database("a")
    assert caught.value.scope == "a"


def test_wrong_arguments_need_no_server() -> None:
    wrong: Any
    some = catalog()
    with pytest.raises(InvalidArgumentError, match="either segments or scaling"):
        some.create_table("a/b", segments=1, scaling=ScalingPolicy.fixed(1))
    wrong = "tag"
    with pytest.raises(InvalidArgumentError, match="tags must be a set"):
        some.create_table("a/b", tags=wrong)
    with pytest.raises(InvalidArgumentError, match=r"^segments must be a whole number from 1"):
        some.create_table("a/b", segments=0)
    wrong = 7
    with pytest.raises(InvalidArgumentError, match="pattern must be a string"):
        some.list_tables("a", wrong)
    with pytest.raises(InvalidArgumentError, match="name a database"):
        some.list_tables()
    wrong = "sometimes"
    with pytest.raises(InvalidArgumentError, match="reads must be"):
        some.register("a", reads=wrong)
    with pytest.raises(InvalidArgumentError, match="ends is for"):
        some.register("a", reads="current", ends={})
    wrong = {ScopedStream("a", "b"): "latest"}
    with pytest.raises(
        InvalidArgumentError, match="the end of a/b must be of the class StreamCut, not 'latest'"
    ):
        some.register("a", ends=wrong)
    wrong = 5
    with pytest.raises(InvalidArgumentError, match="ends must be of the class Mapping, not 5"):
        some.register("a", ends=wrong)
    with pytest.raises(InvalidArgumentError, match="query must be a non-empty string, not 5"):
        some.sql(wrong)
    with pytest.raises(InvalidArgumentError, match="name must be a non-empty string, not 5"):
        some.unregister_view(wrong)
    assert repr(some) == "<PravegaCatalog of tcp://127.0.0.1:1, 0 views>"
