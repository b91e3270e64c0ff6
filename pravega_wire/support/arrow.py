"""Arrow values of Python's without ``pyarrow.scalar``, whose first call imports pandas if it is installed.

That takes a third of a second, which each new worker of Spark would pay, and 50 MB.
"""

from __future__ import annotations

import struct
from typing import Any

__all__ = ["arrow_integer", "arrow_text"]


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
