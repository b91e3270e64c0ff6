"""Whether pyarrow is there, files for it, and Arrow values of Python's without ``pyarrow.scalar``.

The first call of ``pyarrow.scalar`` imports pandas if it is installed: 50 MB, and a third of a second in each
new worker of Spark.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Any, Literal

from pravega_wire.errors import MissingExtraError

__all__ = ["arrow_file", "arrow_integer", "arrow_text", "need_arrow"]


def need_arrow(what: str) -> None:
    """Check that pyarrow can be imported.

    :param what: what needs it, for the message (``"archives need"``).
    :raises MissingExtraError: it cannot.
    """
    try:
        import pyarrow  # noqa: F401
    except ImportError as error:
        raise MissingExtraError(f'{what} pyarrow: pip install "pravega-wire[arrow]"') from error


def arrow_file(path: Path, mode: Literal["rb", "wb"]) -> Any:
    """Open a file. Given a path, Arrow takes a name with a colon for a URI, and fails for one that is not
    UTF-8."""
    import pyarrow as pa

    return pa.OSFile(os.fsencode(path), mode)


def arrow_integer(value: int) -> Any:
    """Return an ``int64`` scalar."""
    import pyarrow as pa

    return pa.Array.from_buffers(pa.int64(), 1, [None, pa.py_buffer(struct.pack("=q", value))])[0]


def arrow_text(value: str) -> Any:
    """Return a ``string`` scalar."""
    import pyarrow as pa

    data = value.encode()
    ends = pa.py_buffer(struct.pack("=ii", 0, len(data)))
    return pa.Array.from_buffers(pa.string(), 1, [None, ends, pa.py_buffer(data)])[0]
