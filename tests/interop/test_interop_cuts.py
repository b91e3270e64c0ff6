"""Stream cuts made by one client and used by the other."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from pravega_wire import StreamCut
from pravega_wire.errors import DataLossError
from pravega_wire.sync import PravegaClient
from tests.interop.java_peer import JavaPeer

PARTS = [[(f"key-{number % 31}", b"%d-%d" % (part, number)) for number in range(400)] for part in range(3)]


@pytest.fixture
def cuts(client: PravegaClient, pravega_scope: str, java_peer: JavaPeer) -> list[list[str]]:
    """Texts of the same four positions in stream ``s``, each by Python and by Java.

    Between the second and the third position the stream was scaled.
    """
    client.create_stream("s", 2)
    texts = [_cuts(client, java_peer, pravega_scope)]
    for number, part in enumerate(PARTS):
        with client.event_writer("s") as writer:
            writer.write_events([payload for _, payload in part], routing_keys=[key for key, _ in part])
        texts.append(_cuts(client, java_peer, pravega_scope))
        if number == 0:
            client.scale_stream("s", [0, 1], [(0.0, 0.3), (0.3, 0.6), (0.6, 1.0)])
    return texts


def _cuts(client: PravegaClient, java_peer: JavaPeer, scope: str) -> list[str]:
    return [client.tail("s").to_text(), java_peer.value("tail", scope, "s")]


def read_in_python(client: PravegaClient, start: str, end: str) -> list[bytes]:
    """Payloads between two cuts."""
    return [payload for batch in client.read_events("s", start, end) for payload in batch]


def payloads(parts: Iterable[list[tuple[str, bytes]]]) -> list[bytes]:
    """Sorted payloads of parts."""
    return sorted(payload for part in parts for _, payload in part)


@pytest.mark.smoke
def test_both_understand_the_same_position(
    client: PravegaClient, pravega_scope: str, java_peer: JavaPeer, cuts: list[list[str]]
) -> None:
    for ours, theirs in cuts:
        assert StreamCut.from_text(ours) == StreamCut.from_text(theirs)
        for text in (ours, theirs):
            stream, positions = java_peer.describe_cut(text)
            assert stream == f"{pravega_scope}/s"
            assert positions == StreamCut.from_text(text).positions
    assert StreamCut.from_text(java_peer.value("head", pravega_scope, "s")) == client.head("s")


@pytest.mark.parametrize("start", [0, 1, 2])
@pytest.mark.parametrize("length", [1, 2, 3])
def test_both_read_the_same_between_two_cuts(
    client: PravegaClient,
    pravega_scope: str,
    java_peer: JavaPeer,
    cuts: list[list[str]],
    start: int,
    length: int,
) -> None:
    end = min(start + length, len(PARTS))
    expected = payloads(PARTS[start:end])
    for maker in (0, 1):
        first, last = cuts[start][maker], cuts[end][maker]
        events = java_peer.read_batch(pravega_scope, "s", first, last)
        assert sorted(event.payload for event in events) == expected
        assert sorted(read_in_python(client, first, last)) == expected


def test_java_truncates_at_a_python_cut(
    client: PravegaClient, pravega_scope: str, java_peer: JavaPeer, cuts: list[list[str]]
) -> None:
    assert java_peer.value("truncate", pravega_scope, "s", cuts[2][0]) == "true"

    assert client.head("s") == StreamCut.from_text(cuts[2][0])
    assert sorted(read_in_python(client, "earliest", "latest")) == payloads(PARTS[2:])
    with pytest.raises(DataLossError):
        read_in_python(client, cuts[0][0], "latest")


def test_python_truncates_at_a_java_cut(
    client: PravegaClient, pravega_scope: str, java_peer: JavaPeer, cuts: list[list[str]]
) -> None:
    client.truncate_stream("s", StreamCut.from_text(cuts[2][1]))

    events = java_peer.read_batch(pravega_scope, "s")
    assert sorted(event.payload for event in events) == payloads(PARTS[2:])
