"""Transactions begun by one client and seen, committed or aborted by the other."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from uuid import UUID, uuid4

import pytest

from pravega_wire import TxnStatus
from pravega_wire.errors import TransactionAbortedError, TransactionNotOpenError
from pravega_wire.sync import PravegaClient
from tests.interop.java_peer import JavaPeer, JavaPeerError

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


@pytest.mark.smoke
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


@pytest.mark.smoke
def test_python_commits_a_java_transaction(
    client: PravegaClient, pravega_scope: str, java_peer: JavaPeer
) -> None:
    txn_id = UUID(java_peer.write_transaction(pravega_scope, "s", EVENTS[:500]))
    transaction = client.resume_transaction("s", txn_id)
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
        with client.staging("s", transaction.txn_id).writer(staging_id) as writer:
            writer.write_events(PAYLOADS[part], routing_keys=KEYS[part])
    client.staging("s", transaction.txn_id).merge(winners)
    client.staging("s", transaction.txn_id).merge(winners)
    client.staging("s", transaction.txn_id).delete([loser])
    assert read_in_java(java_peer, pravega_scope) == []

    transaction.commit()
    transaction.wait_committed()

    assert read_in_java(java_peer, pravega_scope) == PAYLOADS


def in_order(payloads: Iterable[bytes]) -> bool:
    """Whether the events of each key come in the order of their numbers."""
    last: dict[int, int] = {}
    for number in map(int, payloads):
        if number <= last.get(number % 17, -1):
            return False
        last[number % 17] = number
    return True


def check_both_read(
    client: PravegaClient, java_peer: JavaPeer, scope: str, expected: Sequence[bytes]
) -> None:
    """Each event is there once and in order per key, for both: also where an epoch was rolled over."""
    ours = [payload for batch in client.read_events("s") for payload in batch]
    theirs = [event.payload for event in java_peer.read_group(scope, "s", len(expected))]
    for payloads in (ours, theirs):
        assert in_order(payloads)
        assert sorted(payloads, key=int) == expected


SCALES: dict[str, list[tuple[list[int], list[tuple[float, float]]]]] = {
    "no-scale": [],
    # Of three equal segments: none stays, and one stays.
    "scaled": [([0, 1, 2], [(0.0, 0.25), (0.25, 0.5), (0.5, 0.75), (0.75, 1.0)])],
    "one-stays": [([0, 1], [(0.0, 0.1), (0.1, 0.4), (0.4, 2 / 3)])],
}


def scale(client: PravegaClient, how: str) -> None:
    for seal, ranges in SCALES[how]:
        low = {each.segment_id: each.low for each in client.active_segments("s")}
        # The outer bounds as the controller has them.
        first, last = min(low[each] for each in seal), max(low[each] for each in seal)
        assert first == ranges[0][0]
        [end] = [each.high for each in client.active_segments("s") if each.low == last]
        client.scale_stream("s", seal, [*ranges[:-1], (ranges[-1][0], end)])


@pytest.mark.parametrize("how", SCALES)
@pytest.mark.parametrize("end", ["commit", "abort"])
def test_python_resumes_and_ends_what_java_has_begun(
    client: PravegaClient, pravega_scope: str, java_peer: JavaPeer, how: str, end: str
) -> None:
    txn_id = UUID(java_peer.write_transaction(pravega_scope, "s", EVENTS[:400]))
    with java_peer.transaction(pravega_scope, "s", txn_id) as beginner:
        scale(client, how)
        with client.resume_transaction("s", txn_id) as transaction:
            assert transaction.epoch == 0
            transaction.write_events(PAYLOADS[400:700], routing_keys=KEYS[400:700])
            transaction.flush()
            # The one that has begun it goes on, on the segments of an epoch that is over.
            beginner.write(EVENTS[700:])
            assert read_in_python(client) == []
            if end == "commit":
                transaction.commit()
                transaction.wait_committed()
                beginner.commit()
                assert beginner.status == "COMMITTED"
            else:
                transaction.abort()
                with pytest.raises(JavaPeerError, match="TxnFailedException"):
                    beginner.commit()
    assert client.transaction_status("s", txn_id) in (
        {TxnStatus.COMMITTED} if end == "commit" else {TxnStatus.ABORTING, TxnStatus.ABORTED}
    )
    check_both_read(client, java_peer, pravega_scope, PAYLOADS if end == "commit" else [])


@pytest.mark.parametrize("how", SCALES)
@pytest.mark.parametrize("end", ["commit", "abort"])
def test_java_resumes_and_ends_what_python_has_begun(
    client: PravegaClient, pravega_scope: str, java_peer: JavaPeer, how: str, end: str
) -> None:
    begun = client.begin_transaction("s")
    begun.write_events(PAYLOADS[:400], routing_keys=KEYS[:400])
    begun.flush()
    scale(client, how)
    with java_peer.transaction(pravega_scope, "s", begun.txn_id) as transaction:
        transaction.write(EVENTS[400:700])
        begun.write_events(PAYLOADS[700:], routing_keys=KEYS[700:])
        begun.flush()
        assert read_in_java(java_peer, pravega_scope) == []
        if end == "commit":
            transaction.commit()
            begun.wait_committed()
            begun.commit()
        else:
            transaction.abort()
            with pytest.raises(TransactionAbortedError):
                begun.commit()
            begun.abort()
    begun.close()
    assert java_peer.value("txn-status", pravega_scope, "s", begun.txn_id) in (
        {"COMMITTED"} if end == "commit" else {"ABORTING", "ABORTED"}
    )
    check_both_read(client, java_peer, pravega_scope, PAYLOADS if end == "commit" else [])


def test_python_resumes_what_java_has_begun_in_an_epoch_with_an_older_segment(
    client: PravegaClient, pravega_scope: str, java_peer: JavaPeer
) -> None:
    """The segment that stayed has the transaction's events under the transaction's epoch, not its own.

    The other way round is not possible: when the Java client resumes a transaction it does not take the
    transaction's epoch for that (``docs/protocol/controller.md``, "Generalized segment ids").
    """
    scale(client, "one-stays")
    txn_id = UUID(java_peer.write_transaction(pravega_scope, "s", EVENTS[:500]))
    active = [each.segment_id for each in client.active_segments("s")]
    assert {each >> 32 for each in active} == {0, 1}
    client.scale_stream("s", active, [(0.0, 0.5), (0.5, 0.7), (0.7, 1.0)])
    with client.resume_transaction("s", txn_id) as transaction:
        assert transaction.epoch == 1
        transaction.write_events(PAYLOADS[500:], routing_keys=KEYS[500:])
        transaction.commit()
        transaction.wait_committed()
    check_both_read(client, java_peer, pravega_scope, PAYLOADS)


@pytest.mark.parametrize("first", ["java", "python"])
@pytest.mark.parametrize("end", ["commit", "abort"])
def test_both_ask_twice_for_the_same_end(
    client: PravegaClient, pravega_scope: str, java_peer: JavaPeer, first: str, end: str
) -> None:
    begun = client.begin_transaction("s")
    begun.write_events(PAYLOADS, routing_keys=KEYS)
    begun.flush()
    resumed = client.resume_transaction("s", begun.txn_id)
    with (
        java_peer.transaction(pravega_scope, "s", begun.txn_id) as one,
        java_peer.transaction(pravega_scope, "s", begun.txn_id) as another,
    ):
        ours = [getattr(each, end) for each in (begun, resumed, begun)]
        theirs = [getattr(each, end) for each in (one, another)]
        for ask in [*theirs, *ours] if first == "java" else [*ours, *theirs]:
            ask()
        if end == "commit":
            begun.wait_committed()
            # The opposite is refused here, and passed over in silence there; it changes nothing.
            with pytest.raises(TransactionNotOpenError, match="committed"):
                client.abort_transaction("s", begun.txn_id)
            java_peer.call("txn-abort", pravega_scope, "s", begun.txn_id)
            assert client.transaction_status("s", begun.txn_id) is TxnStatus.COMMITTED
        else:
            with pytest.raises(TransactionAbortedError):
                begun.commit()
            with pytest.raises(JavaPeerError, match="TxnFailedException"):
                java_peer.call("txn-commit", pravega_scope, "s", begun.txn_id)
        # Once more, now that it is done.
        begun.commit() if end == "commit" else begun.abort()
    check_both_read(client, java_peer, pravega_scope, PAYLOADS if end == "commit" else [])
