"""One table segment: reading, iterating, and updates whose outcome is never guessed.

Limits and the meaning of versions are in ``docs/protocol/wire.md``, "Table segments".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from pravega_wire.errors import (
    AuthError,
    DecodeError,
    EncodeError,
    InvalidArgumentError,
    PravegaError,
    PravegaTimeoutError,
    RetriesExhaustedError,
    SegmentError,
    TableKeyBadVersionError,
    TableKeyDoesNotExistError,
    TableOutcomeUnknownError,
    UnexpectedReplyError,
)
from pravega_wire.protocol import commands as c
from pravega_wire.segment.store import Backoff, SegmentStores, SegmentTarget
from pravega_wire.transport.limits import limit, note_failure

__all__ = [
    "ANY_VERSION",
    "MAX_BATCH_BYTES",
    "MAX_BATCH_KEYS",
    "MAX_KEYS_PER_LISTING",
    "MAX_KEYS_PER_READ",
    "MAX_KEY_BYTES",
    "MAX_VALUE_BYTES",
    "NOT_EXISTS",
    "Change",
    "Next",
    "Progress",
    "TableSegment",
    "batch_bytes",
    "settle",
]

ANY_VERSION: Final = -(2**63)
"""Version in an update without a condition."""

NOT_EXISTS: Final = -1
"""Version in an update: the key must not exist. In a result: the key does not exist."""

MAX_KEY_BYTES: Final = 256
"""Longest key in bytes in the segments of user tables, whose keys all have one length."""

MAX_VALUE_BYTES: Final = 1024 * 1024 - 8192
MAX_BATCH_KEYS: Final = 256
MAX_BATCH_BYTES: Final = 0xFFFFFF - 8192

# This many of the largest values fit into one reply.
MAX_KEYS_PER_READ: Final = 15

# This many of the longest keys fit into one reply.
MAX_KEYS_PER_LISTING: Final = 10_000


@dataclass(frozen=True, slots=True)
class Change:
    """One key's part of an update.

    :param key: the key.
    :param version: version that the key must have, :data:`NOT_EXISTS` or :data:`ANY_VERSION`.
    :param value: the new value, None to remove the key.
    """

    key: bytes
    version: int
    value: bytes | None


def batch_bytes(changes: Sequence[Change]) -> int:
    """Return the size in bytes of changes in a command."""
    return 4 + sum(
        16 + len(change.key) + (0 if change.value is None else 8 + len(change.value)) for change in changes
    )


class Next(Enum):
    """What an update needs after a failed attempt."""

    SEND = "send it again"
    LOCATE = "look up the versions that the store compares, then send it again"
    READ_BACK = "read the keys, to find out whether it was made"
    GIVE_UP = "raise the error"


class Progress:
    """What is known of an update while it is attempted. It does no I/O.

    :ivar sent: whether an attempt was sent whose answer is not there yet. Who sends it sets this.
    :ivar lost: how the answer of an attempt was lost, None if that never happened.
    """

    __slots__ = ("lost", "sent")

    def __init__(self) -> None:
        self.sent = False
        self.lost: PravegaError | None = None

    @property
    def may_be_made(self) -> bool:
        """Whether the store may have made the update, although no answer says so."""
        # If it was found not made, it was sent again.
        return self.sent or self.lost is not None

    def failed(self, error: PravegaError) -> Next:
        """Say what has to be done after an attempt has failed."""
        sent, self.sent = self.sent, False
        if isinstance(error, TableKeyBadVersionError | TableKeyDoesNotExistError):
            # An attempt whose answer was lost may have changed the version itself.
            return Next.LOCATE if self.lost is None else Next.READ_BACK
        if sent and not _is_refusal(error):
            self.lost = error
        elif not error.retriable:
            return Next.GIVE_UP
        return Next.SEND if self.lost is None else Next.READ_BACK


class TableSegment:
    """Requests about one table segment. They raise the errors of :meth:`SegmentStores.call`.

    :param stores: the segment stores.
    :param target: the segment.
    :param sole_writer: whether no other client changes the keys that are changed here, from the first update
        on. Then the outcome after a lost answer can be found by reading the keys.
    """

    __slots__ = ("_horizon_known", "_newest", "_sole_writer", "_stores", "target")

    def __init__(self, stores: SegmentStores, target: SegmentTarget, *, sole_writer: bool = False) -> None:
        self._stores = stores
        self._sole_writer = sole_writer
        # Versions in a segment only grow, over all keys. An entry whose version is not above this one existed
        # already when this version was seen.
        self._newest = NOT_EXISTS
        self._horizon_known = False
        self.target = target

    # --- reading --------------------------------------------------------------------------------

    async def info(self) -> c.TableSegmentInfo:
        """Return the length, the number of entries (an estimate, which lags) and the length of the keys.

        :raises NoSuchSegmentError: the segment does not exist.
        """
        name = self.target.name
        return await self._stores.call(
            self.target,
            lambda request_id, token: c.GetTableSegmentInfo(
                request_id=request_id, segment_name=name, delegation_token=token
            ),
            c.TableSegmentInfo,
            doing="asking about table segment",
        )

    async def read(self, keys: Sequence[bytes]) -> list[c.TableEntry | None]:
        """Return the entries of keys, in their order; None for a key that does not exist.

        :param keys: at most :data:`MAX_KEYS_PER_READ`, because a reply must fit into one frame.
        :raises NoSuchSegmentError: the segment does not exist.
        """
        wanted = tuple(c.TableKey(key, ANY_VERSION) for key in keys)
        name = self.target.name
        reply = await self._stores.call(
            self.target,
            lambda request_id, token: c.ReadTable(
                request_id=request_id, segment=name, delegation_token=token, keys=wanted
            ),
            c.TableRead,
            doing="reading from table segment",
        )
        # The key of a missing entry is known by its place in the reply. Its bytes cannot be trusted: see
        # docs/protocol/unforgiving.md, "Trusting the key bytes of a missing entry".
        found = [None if entry.key.version == NOT_EXISTS else entry for entry in reply.entries]
        if len(found) != len(keys) or any(
            entry is not None and entry.key.data != key for entry, key in zip(found, keys, strict=True)
        ):
            raise DecodeError(
                f"{name}: requested {len(keys)} keys, but the {len(found)} entries of the reply do not match",
                segment=name,
            )
        self._saw(entry.key for entry in reply.entries)
        return found

    async def read_keys(self, first: bytes, last: bytes, count: int) -> tuple[c.TableKey, ...]:
        """Return about ``count`` keys from ``first`` to ``last`` (both inclusive), in unsigned byte order.

        :param first: first key.
        :param last: last key.
        :param count: number of keys, at most :data:`MAX_KEYS_PER_LISTING`.
        :returns: keys with their versions. None are left if it is empty; fewer than ``count`` do not mean
            that.
        """
        name = self.target.name
        arguments = c.TableIteratorArgs(b"", b"", first, last)
        reply = await self._stores.call(
            self.target,
            lambda request_id, token: c.ReadTableKeys(
                request_id=request_id,
                segment=name,
                delegation_token=token,
                suggested_key_count=count,
                args=arguments,
            ),
            c.TableKeysRead,
            doing="listing the keys of table segment",
        )
        self._saw(reply.keys)
        return reply.keys

    def _saw(self, keys: Iterable[c.TableKey]) -> None:
        self._newest = max(self._newest, max((key.version for key in keys), default=NOT_EXISTS))

    # --- updating -------------------------------------------------------------------------------

    async def update(self, changes: Sequence[Change]) -> list[int]:
        """Make all changes or none.

        No change is made twice. If the answer is lost, the keys are read back. The update is sent again only
        if that shows that it was not made, and with conditions that can hold for only one of the two
        attempts.

        :param changes: the changes; either all set a value or all remove a key.
        :returns: the new versions, in order; :data:`NOT_EXISTS` for removed keys.
        :raises TableKeyBadVersionError: a key has another version; nothing was changed.
        :raises TableOutcomeUnknownError: the answer was lost, and reading the keys did not show what
            happened; ``found`` has a :class:`TableEntry` of the protocol, or None, for each key.
        :raises RetriesExhaustedError: the store could not be reached; nothing was changed.
        """
        progress = Progress()
        try:
            with limit(self._stores.operation_timeout, f"updating table segment {self.target.name}"):
                return await self._update(changes, progress)
            raise AssertionError("not reached")  # the limit raises when it ends the update
        except (RetriesExhaustedError, PravegaTimeoutError) as error:
            if progress.may_be_made:
                raise self._unknown(progress.lost or error, error.message) from error
            raise

    async def _update(self, changes: Sequence[Change], progress: Progress) -> list[int]:
        if not self._horizon_known:
            # A version is the offset of an entry in its segment. Other updates may be answered meanwhile.
            last = await self._last_offset()
            self._newest = max(self._newest, last)
            self._horizon_known = True
        backoff = Backoff()
        horizon = self._newest
        attempt = changes
        while True:
            try:
                return await self._attempt(attempt, progress)
            except PravegaError as error:
                failure = error
            note_failure(failure)
            following, lost = progress.failed(failure), progress.lost
            if following is Next.GIVE_UP:
                raise failure if lost is None else self._unknown(lost, failure.message) from failure
            if following is Next.LOCATE:
                located = await self._located(changes)
                if located is None:
                    raise _bad_version(self.target.name, failure) from failure
                attempt = located
            elif following is Next.READ_BACK:
                assert lost is not None
                versions = await self._settle(changes, horizon, lost)
                if isinstance(versions, list):
                    return versions
                try:
                    attempt = await self._located(versions) or versions
                except PravegaError as error:
                    raise self._unknown(lost, error.message) from error
            await backoff.wait()

    async def _attempt(self, changes: Sequence[Change], progress: Progress) -> list[int]:
        """Send an update once."""
        name = self.target.name
        before = self._newest
        if changes[0].value is None:
            keys = tuple(c.TableKey(change.key, change.version) for change in changes)

            def removal(request_id: int, token: str) -> c.Command:
                progress.sent = True
                return c.RemoveTableKeys(
                    request_id=request_id, segment=name, delegation_token=token, keys=keys
                )

            await self._stores.once(
                self.target, removal, c.TableKeysRemoved, doing="removing from table segment", patient=True
            )
            return [NOT_EXISTS] * len(changes)
        entries = tuple(
            c.TableEntry(c.TableKey(change.key, change.version), change.value or b"") for change in changes
        )

        def putting(request_id: int, token: str) -> c.Command:
            progress.sent = True
            return c.UpdateTableEntries(
                request_id=request_id, segment=name, delegation_token=token, table_entries=entries
            )

        reply = await self._stores.once(
            self.target, putting, c.TableEntriesUpdated, doing="updating table segment", patient=True
        )
        versions = list(reply.updated_versions)
        if len(versions) != len(changes):
            raise UnexpectedReplyError(
                f"{name}: the store returned {len(versions)} versions for an update of {len(changes)} keys",
                segment=name,
            )
        if min(versions) <= before:
            # This is another segment than before, see _settle.
            self._newest = NOT_EXISTS
        self._newest = max(self._newest, *versions)
        return versions

    async def _last_offset(self) -> int:
        """Return an offset that no entry of the segment is beyond. A version is the offset of an entry."""
        return (await self.info()).length - 1

    async def _settle(
        self, changes: Sequence[Change], horizon: int, lost: PravegaError
    ) -> list[int] | tuple[Change, ...]:
        """Find the outcome of an update whose answer was lost.

        :param changes: the update.
        :param horizon: the newest version known before the update was first sent.
        :param lost: how the answer was lost.
        :returns: if it was made, its versions as a list; if not, the update to send as a tuple.
        :raises TableKeyBadVersionError: it was not made and cannot be made.
        :raises TableOutcomeUnknownError: the outcome cannot be found.
        """
        try:
            found = await self._read_all([change.key for change in changes])
            last = await self._last_offset()
        except PravegaError as error:
            raise self._unknown(lost, error.message) from error
        if last < horizon:
            # The segment is shorter than it was, so it is another one: a server has lost its data, and the
            # table was created again. Versions begin anew, and do not tell which entries were there before.
            self._newest = last
            why = f"the segment ends at {last + 1} now, although it had reached {horizon} before"
            raise self._unknown(lost, why, found) from lost
        outcome = settle(changes, found, horizon, self._sole_writer)
        if outcome is None:
            versions = [NOT_EXISTS if entry is None else entry.key.version for entry in found]
            why = f"its first keys have the versions {versions[:5]}, and the newest before was {horizon}"
            raise self._unknown(lost, why, found) from lost
        if not outcome:
            raise _bad_version(self.target.name, lost) from lost
        return outcome

    async def _located(self, changes: Sequence[Change]) -> list[Change] | None:
        """Return the changes with the versions that a store compares; None if their conditions do not hold.

        A 0.13.0 store that compacts a segment moves entries to its end. Reads return the version that an
        entry always had, but conditions are compared with the offset that it was moved to, which only
        listings of keys return (``docs/protocol/unforgiving.md``, "Conditions on entries that were
        compacted").
        """
        demanded = {change.key: change.version for change in changes if change.version != ANY_VERSION}
        keys = [key for key, version in demanded.items() if version != NOT_EXISTS]
        if not keys or not await self._have(demanded):
            return None
        places = await self._places(keys)
        if not await self._have(demanded):
            return None
        # Offsets only grow. If they are the same before and after, they belong to the entries that were read.
        if await self._places(keys) != places:
            return list(changes)
        return [replace(change, version=places.get(change.key, change.version)) for change in changes]

    async def _have(self, versions: Mapping[bytes, int]) -> bool:
        """Return whether reads return these versions for the keys."""
        found = await self._read_all(list(versions))
        return [NOT_EXISTS if entry is None else entry.key.version for entry in found] == [*versions.values()]

    async def _read_all(self, keys: Sequence[bytes]) -> list[c.TableEntry | None]:
        """Return the entries of any number of keys, like :meth:`read`."""
        found: list[c.TableEntry | None] = []
        for start in range(0, len(keys), MAX_KEYS_PER_READ):
            found += await self.read(keys[start : start + MAX_KEYS_PER_READ])
        return found

    async def _places(self, keys: Sequence[bytes]) -> dict[bytes, int]:
        """Return the versions that listings return for keys."""
        places = {}
        for key in keys:
            for each in await self.read_keys(key, key, 1):
                places[key] = each.version
        return places

    def _unknown(
        self, lost: PravegaError, why: str, found: Sequence[c.TableEntry | None] = ()
    ) -> TableOutcomeUnknownError:
        """Return the error of an update whose answer was lost.

        :param why: why its keys do not tell what happened.
        """
        unless_same = "" if why == lost.message else f". Reading its keys did not tell: {why}"
        return TableOutcomeUnknownError(
            f"table segment {self.target.name}: it is not known whether the update was made, because its "
            f"answer was lost: {lost.message}{unless_same}",
            segment=self.target.name,
            host=lost.host,
            found=tuple(found),
        )


def settle(
    changes: Sequence[Change], found: Sequence[c.TableEntry | None], horizon: int, sole_writer: bool
) -> list[int] | tuple[Change, ...] | None:
    """Decide the outcome of an update whose answer was lost, from the entries of its keys afterwards.

    :param changes: the update.
    :param found: the entry of each key, None if there was none.
    :param horizon: a version that some entry of the segment had before the update was first sent.
    :param sole_writer: whether no other client changes these keys.
    :returns: a list of versions if the update was made. A tuple of changes if it was not made and can be sent
        like this; an empty tuple if its conditions do not hold. None if the outcome cannot be decided.
    """
    versions = [NOT_EXISTS if entry is None else entry.key.version for entry in found]
    as_asked = all(
        (None if entry is None else entry.value) == change.value
        for change, entry in zip(changes, found, strict=True)
    )
    holds = all(
        change.version in (ANY_VERSION, version) for change, version in zip(changes, versions, strict=True)
    )
    # An update changes all its keys together and gives each a version that no entry had before. A single
    # unchanged key therefore shows that the update was not made.
    untouched = any(
        version != NOT_EXISTS and (version == change.version or version <= horizon)
        for change, version in zip(changes, versions, strict=True)
    )
    conditional = any(change.version != ANY_VERSION for change in changes)
    if not untouched:
        if as_asked and (sole_writer or not conditional):
            # Another client may have written the same values. That makes no difference to an update without
            # conditions. With conditions, only one of the two may be reported as successful.
            return versions
        if not sole_writer:
            return None
    if not holds:
        return ()
    return tuple(
        replace(change, version=version) if change.value is not None or version != NOT_EXISTS else change
        for change, version in zip(changes, versions, strict=True)
    )


def _is_refusal(error: PravegaError) -> bool:
    """Return whether nothing was done: the store has refused the request, or it was not sent."""
    return isinstance(error, SegmentError | AuthError | InvalidArgumentError | EncodeError)


def _bad_version(segment: str, cause: PravegaError) -> TableKeyBadVersionError:
    return TableKeyBadVersionError(
        f"table segment {segment}: a key has another version than the update requires; nothing was changed",
        segment=segment,
        host=cause.host,
    )
