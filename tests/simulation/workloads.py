"""All workloads, by name."""

from __future__ import annotations

from typing import Final

from tests.simulation import groups, transactions, writers
from tests.simulation.world import Workload

WORKLOADS: Final[dict[str, type[Workload]]] = {
    each.name: each for each in (writers.Writers, writers.Resumed, transactions.Transactions, groups.Groups)
}
