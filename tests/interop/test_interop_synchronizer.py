"""One state, kept by the Java client's synchronizer and by ours."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path

import pytest

from pravega_wire import StateFormat, VersionedSerializer
from pravega_wire.sync import PravegaClient
from tests.interop.java_peer import JavaPeer, start_java_peer


@dataclass(frozen=True)
class Sum:
    value: int


@dataclass(frozen=True)
class Add:
    amount: int


SUM: StateFormat[Sum, Add] = StateFormat(
    VersionedSerializer(Sum, [[("value", "int64")]]),
    VersionedSerializer(Add, [[("amount", "int64")]]),
    lambda state, update: Sum(state.value + update.amount),
)


def of(peer: JavaPeer, *words: object) -> tuple[int, str]:
    """The sum after a command to Java, and its revision's text."""
    [[value, revision]] = peer.call(*words)
    return int(value), revision


@pytest.mark.parametrize("first", ["java", "python"])
def test_java_and_python_keep_one_state(
    client: PravegaClient, pravega_scope: str, java_directory: Path, first: str
) -> None:
    client.create_stream("sum", 1)
    uri = client.config.controller_uri
    with (
        start_java_peer(uri, java_directory, pravega_scope, "sum", program="SynchronizerPeer") as java,
        client.state_synchronizer("sum", SUM) as shared,
    ):
        if first == "java":
            assert of(java, "init", 5)[0] == 5
            assert shared.initialize(Sum(1)) is False
        else:
            assert shared.initialize(Sum(5)) is True
            assert of(java, "init", 1)[0] == 5
        assert shared.state == Sum(5)
        shared.update(lambda state: [Add(1), Add(2)])
        assert of(java, "fetch")[0] == 8
        assert of(java, "add", 10, 3)[0] == 38
        assert shared.fetch_updates() == Sum(38)
        for number in range(4):
            # Either compacts, and the other goes on.
            if number % 2:
                shared.compact(lambda state: state)
            else:
                of(java, "compact")
            shared.update(lambda state: [Add(1)])
            of(java, "add", 100, 1)
        state = shared.fetch_updates()
        assert state == Sum(442)
        assert shared.revision is not None
        assert of(java, "fetch") == (442, shared.revision.to_text())

        # Both at once: each wins some, and nothing is lost.
        racing = threading.Thread(target=of, args=(java, "add", 1, 100))
        racing.start()
        for number in range(100):
            shared.update(lambda state: [Add(1)])
            if number % 20 == 9:
                shared.compact(lambda state: state)
        racing.join()
        assert shared.fetch_updates() == Sum(642)
        assert of(java, "fetch")[0] == 642
        with client.state_synchronizer("sum", SUM) as late:
            assert late.fetch_updates() == Sum(642)
