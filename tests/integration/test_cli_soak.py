"""The short form of ``benchmarks/cli_soak.py``: commands that do not end, while the stream is scaled."""

from __future__ import annotations

import pytest

from benchmarks.cli_soak import Order, memory, soak, table
from pravega_wire.testing import PravegaServer


def test_commands_that_do_not_end_show_everything_until_ctrl_c(pravega_server: PravegaServer) -> None:
    result = soak(pravega_server, 5.0, 400, 1.5, lambda text: None, interval=0.5)
    assert result["events"] > 0
    assert result["scales"] >= 1
    lines = {each["command"]: each["lines"] for each in result["commands"]}
    assert lines["read --follow"] == lines["read --follow --group"] == result["events"]
    assert [each["exit_code"] for each in result["commands"]] == [130] * 4
    assert len(table(result).splitlines()) == 6


def test_it_would_notice_a_missing_event_and_growth() -> None:
    order = Order()
    order.take(b"3 0 text")
    for wrong in (b"3 0 again", b"3 2 one was left out", b"no number"):
        try:
            order.take(wrong)
        except ValueError:
            continue
        pytest.fail(repr(wrong))
    order.take(b"3 1 text")
    assert order.seen == 2
    grown = memory([10.0] * 4 + [20.0] * 4 + [25.0] * 12)
    assert (grown["early_mb"], grown["late_mb"], grown["growth_mb"]) == (20.0, 25.0, 5.0)
