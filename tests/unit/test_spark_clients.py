"""Clients of a process: one for each configuration, few that nobody uses."""

from __future__ import annotations

import gc
import threading
from typing import Any

import pytest

from pravega_wire import PravegaConfig
from pravega_wire.errors import ClosedError
from spark_adapter import clients
from spark_adapter.clients import HeldClient, client_for, close_clients


class Opened:
    """A client, and whether it is open."""

    def __init__(self, config: PravegaConfig) -> None:
        self.config, self.open = config, True

    def close(self) -> None:
        self.open = False
        if self.config.scope == "fails":
            raise ClosedError("not in order")


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Opened]:
    """Every client that a test has opened."""
    found: list[Opened] = []

    def open_client(config: PravegaConfig) -> Opened:
        found.append(Opened(config))
        return found[-1]

    monkeypatch.setattr("pravega_wire.sync.open_client", open_client)
    monkeypatch.setattr(clients, "_clients", {})
    return found


def config_of(scope: str | int) -> PravegaConfig:
    return PravegaConfig.from_defaults(controller_uri="tcp://localhost:1", scope=str(scope), env={})


def open_scopes(opened: list[Opened]) -> list[str | None]:
    return [each.config.scope for each in opened if each.open]


def test_only_the_last_idle_clients_stay_open(opened: list[Opened]) -> None:
    for number in range(20):
        client_for(config_of(number))
    assert open_scopes(opened) == ["16", "17", "18", "19"]
    # one that is there is not opened again, and counts as the last one then
    assert client_for(config_of(16)) is opened[16]
    client_for(config_of(20))
    assert open_scopes(opened) == ["16", "18", "19", "20"]
    close_clients()
    assert open_scopes(opened) == []


def test_a_client_that_is_held_is_not_closed(opened: list[Opened]) -> None:
    first = HeldClient(config_of("held"))
    with HeldClient(config_of("held")) as client:
        assert client is first.client is opened[0]
    held = [HeldClient(config_of(number)) for number in range(10)]
    for number in range(10, 30):
        client_for(config_of(number))
    assert open_scopes(opened)[:11] == ["held", *map(str, range(10))]
    assert len(open_scopes(opened)) == 15
    first.close()
    first.close()
    # nobody else has closed these: what is garbage holds nothing
    held.clear()
    gc.collect()
    client_for(config_of(30))
    assert open_scopes(opened) == ["27", "28", "29", "30"]


def test_a_client_that_cannot_be_closed_in_order_holds_up_nobody(opened: list[Opened], caplog: Any) -> None:
    client_for(config_of("fails"))
    for number in range(4):
        client_for(config_of(number))
    assert open_scopes(opened) == ["0", "1", "2", "3"]
    assert "was not closed properly: not in order" in caplog.text


def test_a_holder_that_is_collected_while_another_thread_opens_a_client_does_not_wait(
    opened: list[Opened],
) -> None:
    held = [HeldClient(config_of(1))]
    collecting = threading.Thread(target=held.clear, daemon=True)
    with clients._lock:
        collecting.start()
        collecting.join(60)
        assert not collecting.is_alive()
    for number in range(2, 8):
        client_for(config_of(number))
    assert open_scopes(opened) == ["4", "5", "6", "7"]
