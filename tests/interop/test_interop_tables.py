"""One key-value table, written and read by the Java client and by ours."""

from __future__ import annotations

import base64
import random
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from pravega_wire import (
    Insert,
    KeyValueTableConfiguration,
    KeyValueVersion,
    Put,
    Remove,
    TableEntry,
    TableKey,
)
from pravega_wire.errors import TableKeyBadVersionError
from pravega_wire.sync import PravegaClient
from pravega_wire.testing import PravegaServer
from tests.interop.java_peer import JavaPeer, JavaPeerError, start_java_peer

Entry = TableEntry[bytes, bytes, bytes]


@pytest.fixture
def java(pravega_server: PravegaServer, pravega_scope: str, java_directory: Path) -> Iterator[JavaPeer]:
    uri = pravega_server.controller_uri
    with start_java_peer(uri, java_directory, pravega_scope, program="TablePeer") as peer:
        yield peer


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def words(key: TableKey[bytes, bytes]) -> tuple[str, str]:
    return b64(key.primary), b64(key.secondary) if key.secondary else "-"


def entry_of(row: list[str]) -> Entry | None:
    if row == ["none"]:
        return None
    primary, secondary, value, version = row
    second = b"" if secondary == "-" else base64.b64decode(secondary)
    key = TableKey(base64.b64decode(primary), second)
    return TableEntry(key, base64.b64decode(value), KeyValueVersion.from_text(version))


def listed(java: JavaPeer, table: str) -> list[Entry]:
    entries = [entry_of(row) for row in java.call("list", table)]
    return [entry for entry in entries if entry is not None]


@pytest.mark.parametrize(
    "shape", [(1, 4, 0), (5, 3, 0), (4, 2, 4), (3, 128, 128)], ids=lambda shape: "-".join(map(str, shape))
)
@pytest.mark.parametrize("creator", ["java", "python"])
def test_both_see_one_table(
    client: PravegaClient, java: JavaPeer, shape: tuple[int, int, int], creator: str
) -> None:
    configuration = KeyValueTableConfiguration(*shape)
    if creator == "java":
        assert java.value("create", "t", *shape) == "true"
        assert client.key_value_table_config("t") == configuration
    else:
        assert client.create_key_value_table("t", configuration)
        assert java.value("create", "t", *shape) == "false"
    table = client.key_value_table("t")
    chosen = random.Random(shape[0])
    primaries = [chosen.randbytes(shape[1]) for _ in range(12)]
    keys = list({TableKey(chosen.choice(primaries), chosen.randbytes(shape[2])) for _ in range(40)})
    mine, theirs = keys[: len(keys) // 2], keys[len(keys) // 2 :]
    versions = {key: table.insert(key, b"python %d" % n) for n, key in enumerate(mine)}
    for number, key in enumerate(theirs):
        text = java.value("insert", "t", *words(key), b64(b"java %d" % number))
        versions[key] = KeyValueVersion.from_text(text)
    expected = [
        *(TableEntry(key, b"python %d" % n, versions[key]) for n, key in enumerate(mine)),
        *(TableEntry(key, b"java %d" % n, versions[key]) for n, key in enumerate(theirs)),
    ]
    for entry in expected:
        [row] = java.call("get", "t", *words(entry.key))
        assert entry_of(row) == entry == table.get(entry.key)
    expected.sort(key=lambda entry: entry.key)
    assert list(table.entries(page_size=3)) == expected == listed(java, "t")
    # Each may go on from the other's version, and only once.
    ours, java_key = mine[0], theirs[0]
    text = java.value("put", "t", *words(ours), b64(b"java"), versions[ours])
    with pytest.raises(TableKeyBadVersionError):
        table.put(ours, b"no", versions[ours])
    table.put(ours, b"python", KeyValueVersion.from_text(text))
    newer = table.put(java_key, b"python", versions[java_key])
    with pytest.raises(JavaPeerError) as refused:
        java.call("put", "t", *words(java_key), b64(b"no"), versions[java_key])
    assert refused.value.kind == "BadKeyVersionException"
    java.call("remove", "t", *words(java_key), newer)
    assert table.get(java_key) is None
    table.remove(ours)
    assert java.value("exists", "t", *words(ours)) == "false"
    assert java.value("get", "t", *words(ours)) == "none"
    with pytest.raises(JavaPeerError) as refused:
        java.call("insert", "t", *words(theirs[1]), b64(b"no"))
    assert refused.value.kind == "BadKeyVersionException"
    table.mapping_of_pairs().clear()
    assert listed(java, "t") == []


@pytest.mark.smoke
def test_batches_and_values_of_every_size(client: PravegaClient, java: JavaPeer) -> None:
    client.create_key_value_table("t", KeyValueTableConfiguration(2, 2, 4))
    table = client.key_value_table("t")
    versions = [KeyValueVersion.from_text(text) for [text] in java.call("batch", "t", b64(b"aa"), 200)]
    assert [entry.version for entry in table.family(b"aa").entries()] == versions
    made = table.update_many([Insert((b"bb", b"%04d" % n), b"%04d" % n) for n in range(256)])
    table.update_many([Remove((b"aa", b"%04d" % n), versions[n]) for n in range(100)])
    table.update_many([Put((b"bb", b"0000"), b"", made[0]), Put((b"bb", b"0001"), bytes(1_040_384))])
    entries = listed(java, "t")
    assert entries == list(table.entries())
    assert [entry.key.secondary for entry in entries] == [
        *(b"%04d" % n for n in range(100, 200)), *(b"%04d" % n for n in range(256)),
    ]  # fmt: skip
    assert [len(entry.value) for entry in entries[100:103]] == [0, 1_040_384, 4]


def test_both_count_at_once(client: PravegaClient, java: JavaPeer) -> None:
    client.create_key_value_table("t", KeyValueTableConfiguration(1, 2))
    table = client.key_value_table("t")
    key = TableKey(b"nn", b"")
    table.put(key, b"0")
    each = 60

    def count() -> None:
        for _ in range(each):
            while True:
                [row] = java.call("get", "t", *words(key))
                entry = entry_of(row)
                assert entry is not None
                try:
                    java.call("put", "t", *words(key), b64(b"%d" % (int(entry.value) + 1)), entry.version)
                except JavaPeerError as error:
                    assert error.kind == "BadKeyVersionException"  # noqa: PT017
                    continue
                break

    other = threading.Thread(target=count)
    other.start()
    for _ in range(each):
        while True:
            entry = table.get(key)
            assert entry is not None
            try:
                table.put(key, b"%d" % (int(entry.value) + 1), entry.version)
            except TableKeyBadVersionError:
                continue
            break
    other.join()
    final = table.get(key)
    assert final is not None
    assert final.value == b"%d" % (2 * each)
