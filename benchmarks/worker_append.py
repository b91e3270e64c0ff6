"""Appends the events that Spark writes with this client alone: ``python -m benchmarks.worker_append URI
SCOPE``.

``append<TAB>form<TAB>stream<TAB>folder<TAB>kind<TAB>count`` appends the events of a folder's Parquet files
with their routing keys, by one writer. The files are read before the clock starts: this is what the same
bytes and keys cost without Spark.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import trio

from benchmarks.spark_work import EVENT, KEY
from benchmarks.work import measure, serve
from pravega_wire import PravegaConfig, open_client


async def append(config: PravegaConfig, stream: str, tables: list[pa.Table]) -> dict[str, float]:
    """Append all tables and flush."""
    async with open_client(config) as client, client.event_writer(stream) as writer:
        with measure() as clock:
            for table in tables:
                for batch in table.to_batches():
                    await writer.write_events(batch.column(EVENT), batch.column(KEY))
            await writer.flush()
    events = sum(table.num_rows for table in tables)
    nbytes = sum(pc.sum(pc.binary_length(table.column(EVENT))).as_py() or 0 for table in tables)
    return clock.answer(events, nbytes)


def main() -> None:
    uri, scope = sys.argv[1:]
    config = PravegaConfig.from_defaults(controller_uri=uri, scope=scope, env={})

    def handle(words: list[str]) -> dict[str, float]:
        _, _, stream, folder, _, _ = words
        tables = [pq.read_table(path).combine_chunks() for path in sorted(Path(folder).glob("*.parquet"))]
        return trio.run(append, config, stream, tables)

    serve(handle)


if __name__ == "__main__":
    main()
