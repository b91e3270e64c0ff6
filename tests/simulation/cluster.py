"""A Pravega of several stores and controllers, whose parts fail and move."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from random import Random
from zlib import crc32

from pravega_wire.grpc.status import StatusCode
from pravega_wire.proto import controller_pb2 as pb
from pravega_wire.testing.memory.controller import Answer, Controller
from pravega_wire.testing.memory.peers import CallPeer, StorePeer
from pravega_wire.testing.memory.store import Segment, SegmentStore
from pravega_wire.testing.memory.streams import NotFound, Stream
from pravega_wire.testing.memory.watermarks import next_watermark
from pravega_wire.values.naming import segment_name
from tests.simulation.machine import Events
from tests.simulation.network import Link, Network

STORES = ("store-1:12345", "store-2:12345", "store-3:12345")
CONTROLLERS = ("controller-1:9090", "controller-2:9090")
_CONTAINERS = 4


class _Controller(Controller):
    """The controllers, which share all they know; it places segments."""

    host_of: Callable[[str], str]
    misbehave: Callable[[str], str]

    def getURI(self, request: pb.SegmentId) -> pb.NodeUri:
        super().getURI(request)
        name = segment_name(request.streamInfo.scope, request.streamInfo.stream, request.segmentId)
        host, port = self.host_of(name).split(":")
        return pb.NodeUri(endpoint=host, port=int(port))

    def call(
        self, path: str, request: bytes, answer: Callable[[Answer], None], authorization: str = ""
    ) -> None:
        match self.misbehave(path.rpartition("/")[2]):
            case "unavailable":
                answer(Answer(code=StatusCode.UNAVAILABLE, text="simulated"))
            case "lost":
                super().call(path, request, lambda found: None, authorization)
            case "late":
                super().call(
                    path,
                    request,
                    lambda found: self.events.after(self.patience(), lambda: answer(found)),
                    authorization,
                )
            case _:
                super().call(path, request, answer, authorization)

    def generation_of(self, scope: str, group: str) -> int:
        """The generation of a reader group, -1 if there is none."""
        found = self._group(scope, group)
        return -1 if found is None else found.generation

    def retain(self, scope: str, stream: str) -> None:
        """Truncate a stream now as its policy says."""
        self._apply_retention(self.stream(scope, stream))

    def mark(self, scope: str, stream: str) -> None:
        """Write a stream's watermark now, if there is a new one."""
        marks = self.stream(scope, f"_MARK{stream}")
        segment = self._store.segment(segment_name(scope, marks.name, marks.epoch.parts[0].id))
        next_watermark(self._store, self.stream(scope, stream), segment, self._now())

    def stream(self, scope: str, stream: str) -> Stream:
        """What there is to know about a stream."""
        found = self.find(scope, stream)
        assert found is not None
        return found

    def find(self, scope: str, stream: str) -> Stream | None:
        """The same, or None if there is no such stream."""
        return self._known(scope, stream)

    def _truncate(self, stream: Stream, cut: dict[int, int]) -> bool:
        before = []
        with suppress(LookupError, ValueError, NotFound):
            for part in stream.between(stream.cut, cut):
                segment = self._store.segments.get(segment_name(stream.scope, stream.name, part.id))
                if segment is not None:
                    end = max(0, cut[part.id] - segment.start) if part.id in cut else len(segment.data)
                    before.append((part.id, segment.start, bytes(segment.data[:end])))
        done = super()._truncate(stream, cut)
        if done:
            for segment_id, offset, data in before:
                self.truncated(stream.name, segment_id, offset, data)
        return done

    def _delete(self, stream: Stream) -> None:
        for part_id in sorted({part.id for epoch in stream.epochs for part in epoch.parts}):
            segment = self._store.segments.get(segment_name(stream.scope, stream.name, part_id))
            if segment is not None:
                self.truncated(stream.name, part_id, segment.start, bytes(segment.data))
        self.deleted(stream)
        super()._delete(stream)

    deleted: Callable[[Stream], object] = staticmethod(lambda stream: None)
    """Called with a stream that is deleted, after :attr:`truncated` with all of it."""
    truncated: Callable[[str, int, int, bytes], object] = staticmethod(lambda *gone: None)
    """Called with what is cut away: the stream, the segment, where that began, and its bytes."""
    events: Events
    patience: Callable[[], float]


class Cluster:
    """Stores, controllers, and what can happen to them.

    :ivar misbehaving: chance that a controller does not answer a call as it should.
    :ivar store_delay: most seconds until a block that was received is stored.
    """

    def __init__(self, network: Network, random: Random) -> None:
        self.events = events = network.events
        self.network = network
        self.random = random
        self.misbehaving = 0.0
        self.store_delay = 0.0
        self.store = SegmentStore(events.wall, random, self._received)
        self.controller = _Controller(self.store, events.wall, random, ("nowhere", 1))
        self.controller.host_of = self.host_of
        self.controller.misbehave = self._misbehave
        self.controller.events = events
        self.controller.patience = lambda: random.uniform(0.5, 30.0)
        self.owners: dict[int, str] = {
            container: STORES[container % len(STORES)] for container in range(_CONTAINERS)
        }
        for store in STORES:
            network.listen(store, partial(self._serve_store, store))
        for controller in CONTROLLERS:
            network.listen(controller, self._serve_calls)
        self._next_run = float("inf")
        self._keep_time()

    # --- who serves what

    @staticmethod
    def container_of(name: str) -> int:
        # Of a transaction's segment that of its parent, as in a real one; how it is spread does not matter.
        return crc32(name.partition("#")[0].encode()) % _CONTAINERS

    def host_of(self, name: str) -> str:
        return self.owners[self.container_of(name)]

    def _serve_store(self, host: str, link: Link) -> StorePeer:
        return StorePeer(self.store, link, lambda name: not name or self.host_of(name) == host)

    def _serve_calls(self, link: Link) -> CallPeer:
        return CallPeer(self.controller, link, lambda: self.events.now, self._keep_time)

    def _keep_time(self) -> None:
        due = self.controller.next_due()
        if due is not None and due < self._next_run:
            self._next_run = due
            self.events.after(max(0.0, due - self.events.wall()), self._run)

    def _run(self) -> None:
        if self.events.wall() + 1e-9 >= self._next_run:
            self._next_run = float("inf")
            self.controller.run()
        self._keep_time()

    def _misbehave(self, rpc: str) -> str:
        if self.misbehaving and self.random.random() < self.misbehaving:
            kind = self.random.choice(("unavailable", "lost", "late"))
            self.events.note(f"{rpc}: {kind}")
            return kind
        return ""

    # --- storing

    def _received(self, segment: Segment) -> None:
        """A block was received for a segment."""
        self.events.after(self.random.random() * self.store_delay, lambda: self._store_next(segment))

    def _store_next(self, segment: Segment) -> None:
        if segment.pending:
            self.store.store_next(segment)

    # --- faults

    def move(self, container: int, host: str) -> None:
        """Another host takes a container over."""
        self.events.note(f"container {container} moves to {host}")
        self.owners[container] = host
        for segment in list(self.store.segments.values()):
            if self.container_of(segment.name) == container:
                self.store.move(segment, self.random.randint(0, len(segment.pending)))

    def crash(self, host: str, back: float) -> None:
        """A host ends, and is there again after some seconds; others take its containers over."""
        self.events.note(f"{host} ends")
        self.network.down.add(host)
        for container in [each for each, owner in self.owners.items() if owner == host]:
            left = [each for each in STORES if each not in self.network.down]
            if left and self.random.random() < 0.7:
                self.owners[container] = "nobody:1"
                self.events.after(self.random.uniform(0.1, 15.0), partial(self._take_over, container))
            self.move(container, self.owners[container])
        for link in self.network.of_server(host):
            link.cut("host ended")
        self.events.after(back, lambda: self.restart(host))

    def _take_over(self, container: int) -> None:
        left = [each for each in STORES if each not in self.network.down]
        if self.owners[container] == "nobody:1":
            if left:
                self.move(container, self.random.choice(left))
            else:
                self.events.after(1.0, partial(self._take_over, container))

    def restart(self, host: str) -> None:
        self.events.note(f"{host} is there again")
        self.network.down.discard(host)

    def heal(self) -> None:
        """Nothing fails any more."""
        self.misbehaving = 0.0
        self.network.down.clear()
        self.network.silent.clear()
        for client, server in sorted(self.network.divided):
            self.network.join(client, server)
