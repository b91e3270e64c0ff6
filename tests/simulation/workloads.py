"""All workloads, by name."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

from tests.simulation import cuts, groups, ingestion, state, transactions, writers
from tests.simulation.world import Workload

WORKLOADS: Final[dict[str, type[Workload]]] = {
    each.name: each
    for each in (
        writers.Writers,
        writers.Resumed,
        cuts.Cuts,
        transactions.Transactions,
        groups.Groups,
        state.Tables,
        state.Synchronizers,
        state.Revisions,
        state.Bytes,
        ingestion.Ingest,
    )
}

if find_spec("pyspark") and find_spec("pyarrow"):
    from tests.simulation.election import Election, Jobs
    from tests.simulation.sink import Sink

    WORKLOADS |= {each.name: each for each in (Sink, Election, Jobs)}
