"""Stream to Parquet: ``python -m examples.spark.stream_to_parquet --stream SCOPE/STREAM --folder DIR ...``.

A run writes the events that were added since the last run to a new subfolder, ``run=000000`` and so on;
``spark.read.parquet(DIR)`` reads them all. A state file contains the end of the run, as the text of a stream
cut. It is replaced atomically when the Parquet files are complete. A run that is killed before that is
repeated from the same position into the same subfolder, which is overwritten. So each event is written once.
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
    """Do one run."""
    parser = argparse.ArgumentParser(description="Write the new events of a stream to Parquet files.")
    parser.add_argument("--controller", default="tcp://localhost:9090")
    parser.add_argument("--stream", required=True, help="scope/stream")
    parser.add_argument("--folder", required=True, help="folder for the Parquet files")
    parser.add_argument("--state", required=True, type=Path, help="file for the end of the last run")
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
    """Replace the contents of a file atomically."""
    temporary = path.with_name(path.name + ".new")
    with temporary.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


if __name__ == "__main__":
    main(sys.argv[1:])
