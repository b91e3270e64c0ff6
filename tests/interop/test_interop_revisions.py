"""Revisioned streams shared by both clients."""

from __future__ import annotations

import base64

import pytest

from pravega_wire import Revision
from pravega_wire.sync import PravegaClient
from tests.interop.java_peer import JavaPeer


@pytest.fixture(autouse=True)
def stream(client: PravegaClient) -> None:
    """Stream ``r`` of one segment."""
    client.create_stream("r", 1)


def write_in_java(java_peer: JavaPeer, scope: str, expected: str, value: bytes) -> str:
    """A conditional write; the new revision's text, or "-"."""
    return java_peer.value("revision-write", scope, "r", expected, base64.b64encode(value).decode())


@pytest.mark.smoke
def test_values_and_revisions_are_the_same(
    client: PravegaClient, pravega_scope: str, java_peer: JavaPeer
) -> None:
    with client.revisioned_stream("r") as revisioned:
        first = revisioned.write_conditionally(revisioned.latest_revision(), b"python")
        assert first is not None
        second = write_in_java(java_peer, pravega_scope, first.to_text(), b"java")
        assert revisioned.latest_revision() == Revision.from_text(second)
        third = revisioned.write_conditionally(Revision.from_text(second), b"python again")
        assert third is not None

        ours = [
            [revision.to_text(), base64.b64encode(value).decode()]
            for revision, value in revisioned.read_from(revisioned.oldest_revision())
        ]
    assert ours == java_peer.call("revision-read", pravega_scope, "r")
    assert [base64.b64decode(value) for _, value in ours] == [b"python", b"java", b"python again"]


def test_the_slower_of_two_is_told(client: PravegaClient, pravega_scope: str, java_peer: JavaPeer) -> None:
    with client.revisioned_stream("r") as revisioned:
        start = revisioned.latest_revision()
        won = revisioned.write_conditionally(start, b"python")
        assert won is not None
        assert write_in_java(java_peer, pravega_scope, start.to_text(), b"late") == "-"

        assert write_in_java(java_peer, pravega_scope, won.to_text(), b"java") != "-"
        assert revisioned.write_conditionally(won, b"late") is None
        values = [value for _, value in revisioned.read_from(start)]
    assert values == [b"python", b"java"]


def test_the_mark_is_shared(client: PravegaClient, pravega_scope: str, java_peer: JavaPeer) -> None:
    with client.revisioned_stream("r") as revisioned:
        assert revisioned.mark() is None
        assert java_peer.value("revision-mark", pravega_scope, "r", "") == "-"
        first = revisioned.write_conditionally(revisioned.latest_revision(), b"1")
        assert first is not None
        assert revisioned.compare_and_set_mark(None, first)
        assert java_peer.value("revision-mark", pravega_scope, "r", "") == first.to_text()

        second = write_in_java(java_peer, pravega_scope, "", b"2")
        java_peer.value("revision-mark", pravega_scope, "r", second)
        assert revisioned.mark() == Revision.from_text(second)
        assert not revisioned.compare_and_set_mark(first, first)
