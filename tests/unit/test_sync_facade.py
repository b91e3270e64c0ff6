"""The blocking classes mirror the async ones: same names, same parameters, same defaults."""

from __future__ import annotations

import inspect

import pytest

from pravega_wire.segment.appender import Ack
from pravega_wire.stream.client import PravegaClient
from pravega_wire.stream.event_reader import EventReader
from pravega_wire.stream.event_writer import EventWriter
from pravega_wire.stream.key_value_table import KeyValueTable, TableFamily, TableIterator
from pravega_wire.stream.reader_group import ReaderGroup
from pravega_wire.stream.resumable import ResumableWriter
from pravega_wire.stream.revisioned import RevisionedStream
from pravega_wire.stream.synchronizer import StateSynchronizer
from pravega_wire.stream.together import RangesReader
from pravega_wire.stream.transaction import StagingWriter, Transaction
from pravega_wire.sync import client as blocking
from pravega_wire.sync import key_value_table as blocking_tables

INTERNAL = {
    # what the appenders call
    "acknowledged", "failed", "sealed", "resent", "reconnecting", "add", "settle", "fail",
    # entering the context does it
    "open",
    # what the blocking iterator of a table takes items from
    "at_hand", "load", "take",
    # what a synchronizer asks when it came too late
    "read_news",
}  # fmt: skip
ATTRIBUTES = {
    "txn_id", "staging_id", "events_written", "bytes_written",
    "id", "next_event_number", "events_skipped",
}  # fmt: skip
"""Of the async classes' instances, which reflection on a class does not see."""
PAIRS = [
    (PravegaClient, blocking.PravegaClient),
    (EventWriter, blocking.EventWriter),
    (ResumableWriter, blocking.ResumableWriter),
    (Transaction, blocking.Transaction),
    (StagingWriter, blocking.StagingWriter),
    (RevisionedStream, blocking.RevisionedStream),
    (Ack, blocking.Ack),
    (StateSynchronizer, blocking.StateSynchronizer),
    (ReaderGroup, blocking.ReaderGroup),
    (EventReader, blocking.EventReader),
    (RangesReader, blocking.RangesReader),
    (KeyValueTable, blocking_tables.KeyValueTable),
    (TableFamily, blocking_tables.TableFamily),
    (TableIterator, blocking_tables.TableIterator),
]


def public(cls: type) -> dict[str, object]:
    return {
        name: value
        for name, value in inspect.getmembers(cls)
        if not name.startswith("_")
        and name not in INTERNAL
        and (callable(value) or isinstance(value, property))
    }


@pytest.mark.parametrize(
    ("asynchronous", "mirror"), PAIRS, ids=lambda cls: cls.__module__ + "." + cls.__name__
)
def test_every_method_has_a_twin(asynchronous: type, mirror: type) -> None:
    wanted, found = public(asynchronous), public(mirror)
    assert sorted(set(wanted) - set(found)) == []
    assert sorted(set(found) - set(wanted) - ATTRIBUTES) == []
    for name, value in wanted.items():
        if isinstance(value, property):
            assert isinstance(found[name], property), name
            continue
        assert callable(value)
        twin = found[name]
        assert callable(twin)
        assert not inspect.iscoroutinefunction(twin), name
        ours = [(p.name, p.kind, p.default) for p in inspect.signature(value).parameters.values()]
        theirs = [(p.name, p.kind, p.default) for p in inspect.signature(twin).parameters.values()]
        assert ours == theirs, name
