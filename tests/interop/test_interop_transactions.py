"""Transactions begun by one client and seen, committed or aborted by the other."""

from __future__ import annotations

from uuid import UUID, uuid4

import pytest

from pravega_wire import TxnStatus
from pravega_wire.sync import PravegaClient
from tests.interop.java_peer import JavaPeer

EVENTS: list[tuple[str | None, bytes]] = [(f"key-{number % 17}", b"%d" % number) for number in range(1000)]
PAYLOADS = [payload for _, payload in EVENTS]
KEYS = [key for key, _ in EVENTS]


@pytest.fixture(autouse=True)
def stream(client: PravegaClient) -> None:
    """Stream ``s`` of three segments."""
    client.create_stream("s", 3)


def read_in_python(client: PravegaClient) -> list[bytes]:
    """All payloads, sorted by number."""
    return sorted((payload for batch in client.read_events("s") for payload in batch), key=int)


def read_in_java(java_peer: JavaPeer, scope: str) -> list[bytes]:
    """All payloads, sorted by number, after a check that each key is in order in its segment."""
    events = java_peer.read_batch(scope, "s")
    chosen = java_peer.segments_for(scope, "s", sorted({key for key in KEYS if key}))
    last: dict[str, int] = {}
    for event in events:
        number = int(event.payload)
        key = f"key-{number % 17}"
        assert event.segment_id == chosen[key]
        assert number > last.get(key, -1)
        last[key] = number
    return sorted((event.payload for event in events), key=int)


def test_java_reads_a_committed_python_transaction(
    client: PravegaClient, pravega_scope: str, java_peer: JavaPeer
) -> None:
    with client.begin_transaction("s") as transaction:
        transaction.write_events(PAYLOADS, routing_keys=KEYS)
        transaction.flush()
        assert read_in_java(java_peer, pravega_scope) == []
        assert java_peer.value("txn-status", pravega_scope, "s", transaction.txn_id) == "OPEN"
        transaction.commit()
        transaction.wait_committed()

    assert java_peer.value("txn-status", pravega_scope, "s", transaction.txn_id) == "COMMITTED"
    assert read_in_java(java_peer, pravega_scope) == PAYLOADS


def test_java_commits_a_python_transaction(
    client: PravegaClient, pravega_scope: str, java_peer: JavaPeer
) -> None:
    transaction = client.begin_transaction("s")
    transaction.write_events(PAYLOADS, routing_keys=KEYS)
    transaction.flush()

    java_peer.call("txn-commit", pravega_scope, "s", transaction.txn_id)

    client.wait_committed("s", transaction.txn_id)
    assert client.transaction_status("s", transaction.txn_id) is TxnStatus.COMMITTED
    assert read_in_java(java_peer, pravega_scope) == PAYLOADS
    transaction.close()


def test_java_aborts_a_python_transaction(
    client: PravegaClient, pravega_scope: str, java_peer: JavaPeer
) -> None:
    transaction = client.begin_transaction("s")
    transaction.write_events(PAYLOADS, routing_keys=KEYS)
    transaction.flush()

    java_peer.call("txn-abort", pravega_scope, "s", transaction.txn_id)

    assert client.transaction_status("s", transaction.txn_id) in (
        TxnStatus.ABORTING,
        TxnStatus.ABORTED,
    )
    assert read_in_java(java_peer, pravega_scope) == []
    transaction.close()


def test_python_commits_a_java_transaction(
    client: PravegaClient, pravega_scope: str, java_peer: JavaPeer
) -> None:
    txn_id = UUID(java_peer.write_transaction(pravega_scope, "s", EVENTS[:500]))
    transaction = client.transaction("s", txn_id)
    transaction.write_events(PAYLOADS[500:], routing_keys=KEYS[500:])
    assert read_in_python(client) == []

    transaction.commit()
    transaction.wait_committed()

    assert java_peer.value("txn-status", pravega_scope, "s", txn_id) == "COMMITTED"
    assert read_in_python(client) == PAYLOADS
    assert read_in_java(java_peer, pravega_scope) == PAYLOADS


def test_python_aborts_a_java_transaction(
    client: PravegaClient, pravega_scope: str, java_peer: JavaPeer
) -> None:
    txn_id = UUID(java_peer.write_transaction(pravega_scope, "s", EVENTS))

    client.abort_transaction("s", txn_id)

    assert java_peer.value("txn-status", pravega_scope, "s", txn_id) in ("ABORTING", "ABORTED")
    assert read_in_python(client) == []


def test_java_reads_staged_events_that_were_merged(
    client: PravegaClient, pravega_scope: str, java_peer: JavaPeer
) -> None:
    transaction = client.begin_transaction("s")
    winners = [uuid4(), uuid4()]
    loser = uuid4()
    for staging_id, part in (
        (winners[0], slice(0, 500)),
        (loser, slice(0, 1000)),
        (winners[1], slice(500, 1000)),
    ):
        with client.staging_writer("s", transaction.txn_id, staging_id) as writer:
            writer.write_events(PAYLOADS[part], routing_keys=KEYS[part])
    client.merge_staging("s", transaction.txn_id, winners)
    client.merge_staging("s", transaction.txn_id, winners)
    client.delete_staging("s", transaction.txn_id, [loser])
    assert read_in_java(java_peer, pravega_scope) == []

    transaction.commit()
    transaction.wait_committed()

    assert read_in_java(java_peer, pravega_scope) == PAYLOADS
