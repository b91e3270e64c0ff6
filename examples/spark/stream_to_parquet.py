"""Stream to Parquet: ``python -m examples.spark.stream_to_parquet --stream SCOPE/STREAM --folder DIR ...``.

A run writes what has come into the stream since the last one to a subfolder of its own, ``run=000000`` and so
on; ``spark.read.parquet(DIR)`` reads them all. A file keeps where the run ended, as the text of a stream cut.
It is replaced as a whole when the Parquet files are complete. A run that is killed before that is repeated
from the same place into the same subfolder, which is overwritten: each event is there once.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import SparkSession

from pravega_wire import PravegaConfig
from pravega_wire.sync import open_client
from spark_adapter import read_df


def main(argv: Sequence[str]) -> None:
    """Run it once."""
    parser = argparse.ArgumentParser(description="What is new in a stream, to Parquet files.")
    parser.add_argument("--controller", default="tcp://localhost:9090")
    parser.add_argument("--stream", required=True, help="scope/stream")
    parser.add_argument("--folder", required=True, help="where the Parquet files go")
    parser.add_argument("--state", required=True, type=Path, help="file that says where the last run ended")
    args = parser.parse_args(argv)

    config = PravegaConfig.from_defaults(controller_uri=args.controller)
    number, start = 0, "earliest"
    if args.state.exists():
        state = json.loads(args.state.read_text())
        number, start = state["run"] + 1, state["end"]
    with open_client(config) as client:
        end = client.tail(args.stream)
    spark = SparkSession.builder.appName("stream to parquet").getOrCreate()
    events = read_df(spark, config, args.stream, start, end, columns="event,segment_id,offset")
    events.write.mode("overwrite").parquet(f"{args.folder}/run={number:06}")
    replace(args.state, json.dumps({"run": number, "end": end.to_text()}))
    print(f"run {number} ended at {end}")


def replace(path: Path, text: str) -> None:
    """Write a file so that it has the old or the new text, whatever happens."""
    temporary = path.with_name(path.name + ".new")
    with temporary.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


if __name__ == "__main__":
    main(sys.argv[1:])
