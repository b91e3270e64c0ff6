"""Appending lines and files: what becomes an event, and its routing key."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Protocol, TextIO, cast

import trio

from pravega_wire.cli.values import counted, os_message
from pravega_wire.errors import InvalidArgumentError
from pravega_wire.protocol.append import MAX_EVENT_BYTES, too_large
from pravega_wire.support.checks import read_json
from pravega_wire.values.types import ScopedStream

if TYPE_CHECKING:
    from pravega_wire.cli.work.schemas import Encoder
    from pravega_wire.stream.client import PravegaClient

__all__ = [
    "Appended",
    "Keyed",
    "Keys",
    "LineSplitter",
    "Pace",
    "append",
    "chunks",
    "file_events",
    "line_events",
    "nothing",
    "unbuffered",
]

CHUNK_BYTES: Final = 1 << 18
LINE_BYTES: Final = MAX_EVENT_BYTES + (1 << 16)
"""Largest line that is kept in memory: an event, and the routing key before it."""

Advance = Callable[[int], None]
Keyed = tuple[bytes, str | None]


def nothing(amount: int) -> None:
    """Progress that nobody watches."""


@dataclass(frozen=True, slots=True)
class Keys:
    """Where the routing key of an event comes from; without any, events have none.

    :ivar fixed: the key of all events.
    :ivar field: field of JSON events, with dots between the names of nested objects.
    :ivar delimiter: text between the key and the event.
    """

    fixed: str | None = None
    field: str | None = None
    delimiter: bytes | None = None

    def __post_init__(self) -> None:
        if sum(each is not None for each in (self.fixed, self.field, self.delimiter)) > 1:
            raise InvalidArgumentError("choose one of --key, --key-field and --key-delimiter")
        if self.delimiter == b"":
            raise InvalidArgumentError("--key-delimiter must not be empty")
        if self.fixed is not None and not _is_text(self.fixed):
            raise InvalidArgumentError("the key is not UTF-8")

    def split(self, data: bytes) -> Keyed:
        """Return the event in some input, and its routing key.

        :raises InvalidArgumentError: there is no key in the input.
        """
        if self.field is not None:
            return data, _field(data, self.field)
        if self.delimiter is None:
            return data, self.fixed
        key, found, event = data.partition(self.delimiter)
        if not found:
            raise InvalidArgumentError(f"there is no {os.fsdecode(self.delimiter)!r} after a key")
        try:
            return event, key.decode()
        except UnicodeDecodeError:
            raise InvalidArgumentError("the key is not UTF-8") from None


def _is_text(argument: str) -> bool:
    """Return whether an argument has no bytes that could not be decoded."""
    try:
        argument.encode()
    except UnicodeEncodeError:
        return False
    return True


def _field(data: bytes, path: str) -> str:
    try:
        value = read_json(data.decode())
    except (ValueError, RecursionError) as error:
        raise InvalidArgumentError(
            f"it is not JSON, so it has no field {path!r} for the key ({error})"
        ) from None
    for name in path.split("."):
        if not isinstance(value, dict) or name not in value:
            raise InvalidArgumentError(f"it has no field {path!r} for the routing key")
        value = value[name]
    if isinstance(value, str):
        return value
    if value is None or isinstance(value, dict | list):
        raise InvalidArgumentError(
            f"its field {path!r} is not a text or a number, so it cannot be a routing key"
        )
    return json.dumps(value)


class LineSplitter:
    """Splits bytes into lines, whatever pieces they come in.

    :param exact: keep carriage returns before line feeds.
    :param keep_empty: return empty lines too.
    :ivar waiting: bytes of a line whose end has not come yet.
    """

    def __init__(self, *, exact: bool = False, keep_empty: bool = False) -> None:
        self._exact = exact
        self._keep_empty = keep_empty
        self._rest: list[bytes] = []
        self.waiting = 0

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Return the lines that the data completes."""
        *whole, rest = data.split(b"\n")
        if whole:
            whole[0] = b"".join((*self._rest, whole[0]))
            self._rest = []
            self.waiting = 0
        if rest:
            self._rest.append(rest)
            self.waiting += len(rest)
        yield from self._lines(whole)

    def end(self) -> Iterator[bytes]:
        """Return the last line, if it does not end in a line feed."""
        if self._rest:
            yield from self._lines([b"".join(self._rest)])
            self._rest = []
            self.waiting = 0

    def _lines(self, lines: Sequence[bytes]) -> Iterator[bytes]:
        for line in lines:
            if not self._exact:
                line = line.removesuffix(b"\r")
            if line or self._keep_empty:
                yield line


def unbuffered(stream: TextIO) -> BinaryIO:
    """Return what is under a text stream, without a buffer.

    A thread that is left behind while it waits for input would hold the buffer's lock, and the interpreter
    cannot end then.
    """
    buffer = cast("Any", stream).buffer
    return cast("BinaryIO", getattr(buffer, "raw", buffer))


async def chunks(source: BinaryIO) -> AsyncIterator[bytes]:
    """Read a file or a pipe; what is there is returned without waiting for more."""
    read = getattr(source, "read1", source.read)
    while data := await trio.to_thread.run_sync(read, CHUNK_BYTES, abandon_on_cancel=True):
        yield data


async def line_events(
    sources: Sequence[tuple[str, BinaryIO]],
    keys: Keys,
    *,
    exact: bool = False,
    keep_empty: bool = False,
    advance: Advance = nothing,
    encode: Encoder | None = None,
) -> AsyncIterator[Keyed]:
    """Yield an event for each line of the sources.

    :param sources: names, for messages, and open files.
    :param keys: where routing keys come from.
    :param exact: keep carriage returns before line feeds.
    :param keep_empty: an empty line is an event, too.
    :param advance: called with the number of bytes that were read.
    :param encode: makes events of the schema registry of the lines.
    :raises InvalidArgumentError: a line has no key, or is larger than an event may be.
    """
    for name, source in sources:
        splitter = LineSplitter(exact=exact, keep_empty=True)
        number = 0
        async for data in _with_end(source):
            lines = splitter.end() if data is None else splitter.feed(data)
            for line in lines:
                number += 1
                if not line and not keep_empty:
                    continue
                try:
                    event = keys.split(line)
                    if encode is not None:
                        event = encode(event[0]), event[1]
                    if len(event[0]) > MAX_EVENT_BYTES:
                        raise too_large(len(event[0]))
                except InvalidArgumentError as error:
                    raise InvalidArgumentError(f"{name}, line {number}: {error.message}") from error
                yield event
            if splitter.waiting > LINE_BYTES:
                raise InvalidArgumentError(
                    f"{name}, line {number + 1}: the line is longer than the {MAX_EVENT_BYTES} bytes of the "
                    "largest event"
                )
            advance(0 if data is None else len(data))


async def _with_end(source: BinaryIO) -> AsyncIterator[bytes | None]:
    async for data in chunks(source):
        yield data
    yield None


async def file_events(
    paths: Sequence[Path], keys: Keys, *, large: bool = True, advance: Advance = nothing
) -> AsyncIterator[Keyed]:
    """Yield an event for each file, with exactly its bytes.

    :param paths: the files.
    :param keys: where routing keys come from.
    :param large: whether an event may have over 8 MiB, as it may not in a transaction.
    :param advance: called with the number of bytes that were read.
    :raises InvalidArgumentError: a file has no key, or is too large.
    :raises OSError: a file cannot be read.
    """
    for path in paths:
        data = await trio.to_thread.run_sync(path.read_bytes, abandon_on_cancel=True)
        try:
            event = keys.split(data)
            if not large and len(event[0]) > MAX_EVENT_BYTES:
                raise too_large(len(event[0]))
        except InvalidArgumentError as error:
            raise InvalidArgumentError(f"{path}: {error.message}") from error
        yield event
        advance(len(data))


class Pace:
    """Keeps events to a rate.

    :param rate: events per second; None for no limit.
    """

    def __init__(self, rate: float | None) -> None:
        if rate is not None and not rate > 0:
            raise InvalidArgumentError(f"--rate must be positive, not {rate:g}")
        self._step = 0.0 if rate is None else 1 / rate
        self._next: float | None = None

    async def wait(self) -> None:
        """Wait until the next event may be written."""
        if not self._step:
            return
        now = trio.current_time()
        due = now if self._next is None else max(self._next, now - 1.0)
        self._next = due + self._step
        await trio.sleep_until(due)


@dataclass(slots=True)
class Appended:
    """What was appended.

    :ivar events: number of events.
    :ivar bytes: their size.
    """

    events: int = 0
    bytes: int = 0


class _Writer(Protocol):
    async def write_event(self, event: bytes, routing_key: str | None = None, /) -> object: ...

    async def flush(self) -> None: ...


async def append(
    client: PravegaClient,
    stream: ScopedStream,
    events: AsyncIterator[Keyed],
    *,
    pace: Pace,
    transaction: bool = False,
    large: bool = False,
) -> Appended:
    """Append events, and return how many there were.

    :param client: the client.
    :param stream: the stream.
    :param events: events and their routing keys.
    :param pace: keeps them to a rate.
    :param transaction: make them visible together.
    :param large: accept events over 8 MiB.
    :raises InvalidArgumentError: an event cannot be written, or the input cannot be read; the events before
        it are stored, unless they are in a transaction.
    :raises OSError: the input cannot be read, in a transaction.
    """
    done = Appended()
    if transaction:
        async with client.begin_transaction(stream) as txn:
            await _write(txn, events, pace, done)
            await txn.commit()
            await txn.wait_committed()
        return done
    opening: AbstractAsyncContextManager[_Writer] = client.event_writer(stream, large_events=large)
    async with opening as writer:
        try:
            await _write(writer, events, pace, done)
        except (InvalidArgumentError, OSError) as error:
            await writer.flush()
            raise InvalidArgumentError(
                f"{os_message(error) if isinstance(error, OSError) else error.message}; "
                f"{counted(done.events, 'event')} before it {'was' if done.events == 1 else 'were'} appended"
            ) from error
    return done


async def _write(writer: _Writer, events: AsyncIterator[Keyed], pace: Pace, done: Appended) -> None:
    async for event, key in events:
        await pace.wait()
        await writer.write_event(event, key)
        done.events += 1
        done.bytes += len(event)
