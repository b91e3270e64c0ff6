"""A Spark driver that kills itself with ``kill -9`` after a step of its batch."""

from __future__ import annotations

import os
import signal
import sys

from pravega_wire import PravegaConfig
from spark_adapter import ForeachBatchSink
from tests.spark.helpers import frame_of, short_lived_session


def main() -> None:
    """Arguments: controller URI, a stream, ledger, step, and a second stream, whose sink dies."""
    controller, first, ledger, step, second = sys.argv[1:]
    config = PravegaConfig.from_defaults(controller_uri=controller, scope="spark", env={})

    def crash(reached: str) -> None:
        if reached == step:
            os.kill(os.getpid(), signal.SIGKILL)

    spark = short_lived_session()
    for each in (first, second):
        sink = ForeachBatchSink(
            config,
            each,
            mode="exactly_once",
            ledger_stream=ledger,
            query="q",
            router=lambda row: row.key,  # by rows: no pandas to import, a shorter life
            crash_hook=crash if each == second else None,
        )
        sink(frame_of(spark, 0), 0)


if __name__ == "__main__":
    main()
