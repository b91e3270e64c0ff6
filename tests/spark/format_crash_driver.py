"""A Spark driver of a streaming query by format name that is killed with ``kill -9`` after a step."""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import replace
from typing import Any

from pravega_wire import PravegaConfig
from spark_adapter import PravegaDataSource
from spark_adapter.options.read import config_options
from tests.spark.helpers import short_lived_session


def crash(reached: str) -> None:
    """Kill the driver, Python and JVM, after the step that the environment names; its workers end by that."""
    if reached == os.environ["CRASH_STEP"]:
        os.killpg(int(os.environ["CRASH_GROUP"]), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)


class Crashing(PravegaDataSource):
    """The data source, with the crash between two steps."""

    def streamWriter(self, schema: Any, overwrite: bool) -> Any:
        """As the original, and its steps kill."""
        sink = super().streamWriter(schema, overwrite)
        sink._plan = replace(sink._plan, hook=crash)
        return sink


def main() -> None:
    """Arguments: controller URI, stream, ledger, step, and the folder with the query's input."""
    controller, stream, ledger, step, folder = sys.argv[1:]
    config = PravegaConfig.from_defaults(controller_uri=controller, scope="spark", env={})
    os.environ |= {"CRASH_STEP": step, "CRASH_GROUP": str(os.getpgid(0))}
    spark = short_lived_session()
    spark.dataSource.register(Crashing)
    reader = spark.readStream.schema("event string, key string").option("maxFilesPerTrigger", 1)
    writer = reader.json(f"{folder}/in").writeStream.format("pravega")
    writer = writer.options(
        **config_options(config), stream=stream, ledger_stream=ledger, routing_key_col="key"
    )
    query = writer.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True).start()
    query.awaitTermination()


if __name__ == "__main__":
    main()
