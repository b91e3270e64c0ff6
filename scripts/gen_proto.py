#!/usr/bin/env python3
"""Generates ``controller_pb2.py`` and its stub from ``controller.proto``.

``--check`` compares what is checked in with the ``.proto`` file (by its descriptor, so that a newer
compiler's formatting does not matter). Needs ``grpcio-tools`` (extra ``dev``). The checked-in file
was made by protoc 26 (grpcio-tools 1.65), the oldest output that every supported runtime accepts.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROTO = ROOT / "pravega_wire" / "proto"


def compile_proto(*arguments: str) -> None:
    from grpc_tools import protoc

    status = protoc.main(["protoc", f"-I{PROTO}", *arguments, str(PROTO / "controller.proto")])
    if status != 0:
        raise SystemExit(f"protoc ended with status {status}")


def main() -> int:
    if "--check" not in sys.argv[1:]:
        compile_proto(f"--python_out={PROTO}", f"--pyi_out={PROTO}")
        return 0
    from google.protobuf import descriptor_pb2

    from pravega_wire.proto import controller_pb2

    with tempfile.TemporaryDirectory() as directory:
        wanted_file = Path(directory) / "wanted"
        compile_proto(f"--descriptor_set_out={wanted_file}")
        wanted = descriptor_pb2.FileDescriptorSet.FromString(wanted_file.read_bytes()).file[0]
    found = descriptor_pb2.FileDescriptorProto()
    controller_pb2.DESCRIPTOR.CopyToProto(found)
    for each in (wanted, found):
        for message in _messages(each.message_type):
            for field in message.field:
                field.ClearField("json_name")
    if wanted != found:
        print(
            "controller_pb2.py does not match controller.proto: run scripts/gen_proto.py",
            file=sys.stderr,
        )
        return 1
    print("controller_pb2.py matches controller.proto")
    return 0


def _messages(messages):  # type: ignore[no-untyped-def]  # protobuf's descriptors are untyped
    for message in messages:
        yield message
        yield from _messages(message.nested_type)


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    raise SystemExit(main())
