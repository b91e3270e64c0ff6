"""A driver that archives or restores, and is killed by a task at a named point: for ``test_archives.py``."""

from __future__ import annotations

import json
import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from pravega_wire import PravegaConfig
from pravega_wire.archive import Stage
from spark_adapter.archives import archive_stream, restore_stream

PART_BYTES = 4000


@dataclass(frozen=True)
class Kill:
    """An observer that kills processes the first time a point is reached; a file says that it was.

    :ivar pids: what to kill besides the process that reaches the point.
    """

    stage: Stage
    marker: Path
    pids: tuple[int, ...] = ()

    def __call__(self, stage: Stage, about: str) -> None:
        if stage is self.stage:
            try:
                self.marker.touch(exist_ok=False)
            except FileExistsError:
                return
            for pid in (*self.pids, os.getpid()):
                os.kill(pid, signal.SIGKILL)


class Ended(Exception):
    """What ends a driver at a point of its own."""


@dataclass(frozen=True)
class End:
    """An observer that raises at a point."""

    stage: Stage

    def __call__(self, stage: Stage, about: str) -> None:
        if stage is self.stage:
            raise Ended


def key_of(event: bytes) -> str:
    """The routing key of an event: its first word."""
    return event.split(b" ")[0].decode()


def main(job: dict[str, str]) -> None:
    session = SparkSession.builder.master("local[2,3]").appName("archives, killed")
    for key, value in json.loads(job["settings"]).items():
        session = session.config(key, value)
    spark = session.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    config = PravegaConfig.from_defaults(controller_uri=job["uri"], scope=job["scope"], env={})
    kill = Kill(Stage[job["stage"]], Path(job["marker"]), (os.getpid(),))
    if job["what"] == "archive":
        archive_stream(spark, config, job["stream"], job["directory"], part_bytes=PART_BYTES, observer=kill)
    else:
        restore_stream(spark, config, job["directory"], job["stream"], observer=kill)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
