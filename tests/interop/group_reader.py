"""A Python reader that prints what ``java/GroupReader.java`` prints: see there."""

from __future__ import annotations

import sys
import time
from base64 import b64encode

import trio

from pravega_wire import PravegaConfig, open_client
from pravega_wire.errors import ReinitializationRequiredError
from tests.java_values import encode_event_pointer, encode_position


def text(data: bytes) -> str:
    return b64encode(data).decode("ascii")


async def main(uri: str, scope: str, group_name: str, reader_id: str) -> None:
    async with (
        open_client(PravegaConfig(controller_uri=uri, scope=scope)) as client,
        client.reader_group(group_name) as group,
        trio.open_nursery() as nursery,
    ):

        async def leave() -> None:
            await trio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True)
            nursery.cancel_scope.cancel()

        nursery.start_soon(leave)
        while True:

            def reached(name: str) -> None:
                print("CHECKPOINT", name, sep="\t", flush=True)

            async with group.reader(reader_id, on_checkpoint=reached) as reader:
                print("READY", flush=True)
                try:
                    while True:
                        item = await reader.read_event()
                        if item is not None:
                            pointer = text(encode_event_pointer(item.pointer))
                            position = text(encode_position(reader.position))
                            print(
                                "EVENT", time.time_ns() // 1000, pointer, text(item.value), position,
                                sep="\t", flush=True,
                            )  # fmt: skip
                        else:
                            await trio.sleep_forever()
                except ReinitializationRequiredError:
                    print("REINITIALIZE", flush=True)


if __name__ == "__main__":
    uri, scope, group, reader = sys.argv[1:]
    trio.run(main, uri, scope, group, reader)
