"""Ingestion on a cluster whose segment store dies."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import trio

from pravega_wire import PravegaConfig, open_client
from pravega_wire.ingest import FileIngester, IngestRecord, Stage, csv_rows
from pravega_wire.testing import PravegaCluster
from tests.integration.ingesting import verify, write_folder

SECONDS = 300
"""A guard only: a store's containers move to the others in about 35 s, and a busy machine takes longer."""


def test_ingestion_goes_on_after_a_store_is_killed(pravega_cluster: PravegaCluster, tmp_path: Path) -> None:
    """``kill -9`` in the middle of a file: the same run ends it, and each row is stored once."""
    expected = write_folder(tmp_path / "in", 6, 5000)
    config = PravegaConfig.from_defaults(
        controller_uri=pravega_cluster.controller_uri, scope=f"ingest-{uuid4().hex[:8]}", env={}
    )
    victim = pravega_cluster.stores[0]
    stages: list[tuple[Stage, str]] = []

    async def observer(stage: Stage, record: IngestRecord) -> None:
        stages.append((stage, record.item))
        if stage is Stage.WRITING and record.item == "part-0002.csv" and victim.alive:
            await trio.to_thread.run_sync(victim.kill)

    async def main() -> None:
        with trio.fail_after(SECONDS):
            async with open_client(config) as client:
                ingester = FileIngester(
                    client, "data", "sync", parse=csv_rows("sensor"), segments=4, observer=observer
                )
                progress = await ingester.run(tmp_path / "in", "*.csv")
                assert (progress.done, progress.events) == (6, 30_000)
                assert await verify(client, expected) == 30_000

    try:
        trio.run(main)
        assert not victim.alive
        assert (Stage.WRITING, "part-0002.csv") in stages
    finally:
        victim.start()
