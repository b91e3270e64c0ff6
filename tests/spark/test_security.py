"""Spark on a server that speaks TLS only and lets nobody in without an account, by options alone."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pravega_wire.sync import open_client
from pravega_wire.testing import standalone
from pravega_wire.testing.running import Kind
from spark_adapter import read_df, register
from spark_adapter.options.read import config_options
from tests.spark.helpers import assert_exactly, frame_of, rows_of


def test_security_options_of_reads_and_writes(spark: SparkSession, tmp_path: Path, own_kind: Kind) -> None:
    register(spark)
    with standalone(kind=own_kind, tls=True, auth=True, memory="1g", cache_bytes=256 << 20) as server:
        config = server.config(f"secure-{uuid4().hex[:8]}")
        options = config_options(config)
        assert {"auth_method", "auth_token", "trust_store"} <= options.keys()
        with open_client(config) as client:
            client.create_scope(str(config.scope))
            client.create_stream("source", 2)
            client.create_stream("target", 2)
            frame_of(spark, 0).write.format("pravega").mode("append").options(**options).options(
                stream="source", routing_key_col="key", job_id="one"
            ).save()
            assert_exactly(client, "source", [0])

            events = spark.readStream.format("pravega").options(**options, stream="source").load()
            events.writeStream.format("pravega").options(**options, stream="target").options(
                checkpointLocation=str(tmp_path / "checkpoint")
            ).trigger(availableNow=True).start().awaitTermination()
            copied = read_df(spark, config, "target", columns="event").collect()
            assert sorted(row.event.decode() for row in copied) == sorted(event for event, _ in rows_of(0))

        for wrong, message in (
            ({"auth_token": "YWRtaW46d3Jvbmc="}, "authentication failed: check the credentials"),
            ({"trust_store": ""}, "certificate"),
        ):
            with pytest.raises(PySparkException, match=message) as raised:
                spark.read.format("pravega").options(**{**options, **wrong}, stream="source").load().count()
            assert options["auth_token"] not in str(raised.value)
