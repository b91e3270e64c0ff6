"""The controller's records of open transactions."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pravega_wire import OpenTransaction, TxnStatus
from pravega_wire.errors import DecodeError, PravegaError
from pravega_wire.protocol.versioned import encode_record
from pravega_wire.stream.open_transactions import decode_active

TXN = UUID(int=7)


def active(status: int = 1, began: int = 1000) -> bytes:
    def first(writer: Any) -> None:
        writer.int64(began).int64(2000).int64(9000).compact_int(status)

    return encode_record([first, lambda writer: writer.utf("w").int64(1).int64(2)])


def test_records_of_open_transactions() -> None:
    began, lease, ends = (
        datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds) for seconds in (1, 2, 9)
    )
    assert decode_active(TXN, active()) == OpenTransaction(TXN, TxnStatus.OPEN, began, lease, ends)
    with pytest.raises(DecodeError, match="status 9 is unknown"):
        decode_active(TXN, active(9))
    with pytest.raises(DecodeError, match="are no times"):
        decode_active(TXN, active(began=2**62))


@given(st.binary(max_size=60))
def test_bad_records_of_transactions_are_typed_errors(data: bytes) -> None:
    try:
        decode_active(TXN, data)
    except PravegaError:
        pass
