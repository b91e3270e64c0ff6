"""Looking for what is wrong: with the way to a cluster, with its stores, transactions and sinks."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Final, Literal

import trio

from pravega_wire.cli.settings import Resolved, refusal
from pravega_wire.cli.values import duration_text
from pravega_wire.controller.tokens import Access, expiry_of
from pravega_wire.controller.types import TxnStatus
from pravega_wire.errors import AuthError, ControllerError, PravegaError, TransactionsUnlistableError
from pravega_wire.protocol import commands as c
from pravega_wire.stream.inside import core_of
from pravega_wire.stream.open_transactions import OpenTransaction, open_transactions, stores_of
from pravega_wire.values.types import Endpoint, ScopedStream, endpoint_text

if TYPE_CHECKING:
    from pravega_wire.stream.client import PravegaClient

__all__ = ["Finding", "examine", "issued_at", "judge_clock", "judge_transactions"]

_HELLO_SECONDS: Final = 10.0
_LISTING_SECONDS: Final = 2.0
_CLOCK_SECONDS: Final = 5.0
_COMMITTING_SECONDS: Final = 60.0

State = Literal["ok", "warning", "problem", "unknown"]


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found in one check.

    :ivar check: what was looked at.
    :ivar state: the verdict. ``unknown``: it cannot be told from here.
    :ivar finding: a sentence.
    """

    check: str
    state: State
    finding: str


async def examine(
    client: PravegaClient,
    resolved: Resolved,
    streams: Sequence[ScopedStream],
    ledgers: Sequence[ScopedStream],
) -> AsyncIterator[Finding]:
    """Make all checks, one after the other; later ones that cannot work are left out.

    :param client: a client.
    :param resolved: its settings.
    :param streams: streams whose transactions are looked at; without any, those of the default scope.
    :param ledgers: ledgers of exactly-once sinks, besides those that are found by their names.
    """
    config = resolved.config
    source = next(each.source for each in resolved.found if each.setting == "controller")
    yield Finding("settings", "ok", f"controller {config.controller_uri} (from: {source})")
    started = trio.current_time()
    try:
        scopes = await client.list_scopes()
    except AuthError as error:
        yield Finding("controller", "ok", "answers")
        yield Finding("credentials", "problem", refusal(error, config))
        return
    except PravegaError as error:
        yield Finding("controller", "problem", error.message)
        return
    took = duration_text(trio.current_time() - started)
    yield Finding("controller", "ok", f"answered in {took}; {len(scopes)} scopes are visible")
    yield await _servers(client)
    found = list(streams)
    if not found and config.scope is not None:
        try:
            found = await client.list_streams(config.scope)
        except PravegaError as error:
            yield Finding("scope", "problem", error.message)
    async for finding in _token(client, found):
        yield finding
    stores = await stores_of(core_of(client), found[0] if found else None)
    for each in stores:
        yield await _store(client, each)
    yield Finding(
        "versions",
        "unknown",
        "controller and stores do not report their release, only versions of the wire protocol",
    )
    async for finding in _transactions(client, found, stores):
        yield finding
    async for finding in _ledgers(client, found, ledgers):
        yield finding


async def _servers(client: PravegaClient) -> Finding:
    with trio.move_on_after(_LISTING_SECONDS):
        try:
            servers = await core_of(client).controller.get_controller_server_list()
        except PravegaError as error:
            if isinstance(error.__cause__, ControllerError):
                return Finding("controllers", "unknown", "this server does not list its controllers")
            return Finding("controllers", "unknown", error.message)
        names = ", ".join(sorted(endpoint_text((each.host, each.port)) for each in servers))
        return Finding("controllers", "ok", f"{len(servers)}: {names}")
    return Finding("controllers", "unknown", f"no answer within {_LISTING_SECONDS:g} s")


async def _token(client: PravegaClient, streams: Sequence[ScopedStream]) -> AsyncIterator[Finding]:
    """Check that the controller issues delegation tokens, and compare clocks by them."""
    credentials = "credentials are set" if client.config.credentials is not None else "no credentials are set"
    if not streams:
        yield Finding(
            "credentials", "unknown", f"{credentials}; name a stream (or --scope) to check its token"
        )
        return
    stream = streams[0]
    try:
        token = await core_of(client).controller.get_delegation_token(stream.scope, stream.name, Access.READ)
    except PravegaError as error:
        yield Finding("credentials", "problem", f"no token for stream {stream}: {error.message}")
        return
    if not token:
        yield Finding("credentials", "ok", f"{credentials}; authorization is off: tokens are empty")
        yield Finding("clock", "unknown", "the server's clock appears in no answer without authorization")
        return
    now = time.time()
    expiry = expiry_of(token)
    held = "does not expire" if expiry is None else f"holds for {duration_text(expiry - now)}"
    yield Finding("credentials", "ok", f"{credentials}; a new token for stream {stream} {held}")
    yield judge_clock(issued_at(token), expiry, now)


def issued_at(token: str) -> float | None:
    """Return when a JSON Web Token was issued (seconds since 1970); None if it does not tell."""
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        return float(claims["iat"])
    except (ValueError, TypeError, LookupError, RecursionError):
        return None


def judge_clock(issued: float | None, expiry: float | None, now: float) -> Finding:
    """Return the verdict about the clocks, from the times in a token that was just issued.

    :param issued: when it was issued by the controller's clock, in whole seconds since 1970.
    :param expiry: when it expires.
    :param now: the present moment by this machine's clock.
    """
    if issued is None:
        return Finding("clock", "unknown", "the token has no issue time")
    ahead = now - issued
    if expiry is not None and expiry <= now:
        return Finding(
            "clock",
            "problem",
            f"a new token has expired by this machine's clock, which is {duration_text(ahead)} ahead of the "
            "controller's",
        )
    if abs(ahead) > _CLOCK_SECONDS:
        side = "ahead of" if ahead > 0 else "behind"
        return Finding(
            "clock", "warning", f"this machine's clock is {duration_text(abs(ahead))} {side} the controller's"
        )
    return Finding("clock", "ok", f"at most {_CLOCK_SECONDS:g} s from the controller's")


class _Greeted:
    """Waits for the first answer of a store."""

    def __init__(self) -> None:
        self.done = trio.Event()
        self.error: PravegaError | None = None

    def on_reply(self, reply: c.Command) -> bool:
        self.done.set()
        return True

    def on_lost(self, error: PravegaError) -> None:
        self.error = error
        self.done.set()


async def _store(client: PravegaClient, endpoint: Endpoint) -> Finding:
    """Ask a store for a segment that cannot exist: any answer will do."""
    name = f"store {endpoint_text(endpoint)}"
    greeted = _Greeted()
    started = trio.current_time()
    try:
        with trio.fail_after(_HELLO_SECONDS):
            flow = await core_of(client).stores.pool.flow(endpoint, greeted)
            try:
                flow.send(
                    c.GetStreamSegmentInfo(
                        request_id=flow.next_request_id(),
                        segment_name="_pravega-wire/doctor/0.#epoch.0",
                        delegation_token="",
                    )
                )
                await greeted.done.wait()
                features = await flow.connection.features()
            finally:
                flow.close()
    except trio.TooSlowError:
        return Finding(name, "problem", f"no answer within {_HELLO_SECONDS:g} s")
    except PravegaError as error:
        return Finding(name, "problem", error.message)
    if greeted.error is not None:
        return Finding(name, "problem", greeted.error.message)
    taken = duration_text(trio.current_time() - started)
    spoken = f"wire versions {features.low} to {features.high} (Pravega {features.release})"
    return Finding(name, "ok", f"answered in {taken}; it speaks {spoken}")


# --- transactions -----------------------------------------------------------------------------------


def judge_transactions(stream: ScopedStream, found: Sequence[OpenTransaction], now: datetime) -> Finding:
    """Return the verdict about the open transactions of a stream.

    :param stream: the stream.
    :param found: its open transactions.
    :param now: the present moment.
    """
    check = f"transactions of {stream}"
    late = [each for each in found if each.status is TxnStatus.OPEN and each.lease_until < now]
    stuck = [
        each
        for each in found
        if each.status is not TxnStatus.OPEN and (now - each.began).total_seconds() > _COMMITTING_SECONDS
    ]
    if late:
        oldest = min(late, key=lambda each: each.lease_until)
        since = duration_text((now - oldest.lease_until).total_seconds())
        return Finding(
            check,
            "warning",
            f"{len(late)} of {len(found)} are open although their leases are over, the first, "
            f"{oldest.txn_id}, for {since}: the controller has not aborted them, or the clocks differ",
        )
    if stuck:
        return Finding(
            check,
            "warning",
            f"{len(stuck)} are committing or aborting, and began over a minute ago, the first is "
            f"{stuck[0].txn_id}: if it stays so, the server needs attention",
        )
    if not found:
        return Finding(check, "ok", "none is open")
    age = duration_text(max(0.0, (now - found[0].began).total_seconds()))
    return Finding(check, "ok", f"{len(found)} open, the oldest for {age}")


async def _transactions(
    client: PravegaClient, streams: Sequence[ScopedStream], stores: Sequence[Endpoint]
) -> AsyncIterator[Finding]:
    for stream in streams:
        try:
            found = await open_transactions(core_of(client), stream, stores)
        except TransactionsUnlistableError as error:
            yield Finding(f"transactions of {stream}", "unknown", error.message)
        except PravegaError as error:
            yield Finding(f"transactions of {stream}", "problem", error.message)
        else:
            yield judge_transactions(stream, found, datetime.now(UTC))


# --- ledgers of exactly-once sinks ------------------------------------------------------------------


async def _ledgers(
    client: PravegaClient, streams: Sequence[ScopedStream], named: Sequence[ScopedStream]
) -> AsyncIterator[Finding]:
    """Let what is installed look at its ledgers: an entry point is named by the end of their names."""
    entries = entry_points(group="pravega_wire.doctor")
    for each in entries:
        ledgers = [
            *named,
            *(found for found in streams if found.name.endswith(each.name) and found not in named),
        ]
        for ledger in ledgers:
            check = f"ledger {ledger}"
            try:
                examine = each.load()
            except ImportError as error:
                yield Finding(check, "unknown", f"it cannot be read here: {error}")
                continue
            async for state, text in examine(client, ledger):
                yield Finding(check, state, text)
    if not entries:
        for ledger in named:
            yield Finding(f"ledger {ledger}", "unknown", "nothing is installed that can read it")
