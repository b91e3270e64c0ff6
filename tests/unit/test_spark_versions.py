"""What an old PySpark, a Spark Connect session or a wrong argument is told, without a session."""

from __future__ import annotations

import ast
import subprocess
import sys
from typing import Any

import pytest

pytest.importorskip("pyspark")

import spark_adapter
from pravega_wire import PravegaConfig
from pravega_wire.errors import InvalidArgumentError, MissingExtraError
from spark_adapter import read_rdd, register, versions

CONFIG = PravegaConfig.from_defaults(controller_uri="tcp://127.0.0.1:1", env={})


def test_without_data_sources_it_is_said_what_to_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "HAS_DATA_SOURCES", False)
    monkeypatch.setattr("pyspark.__version__", "3.5.9")
    session: Any = object()
    with pytest.raises(MissingExtraError, match=r'format "pravega" needs PySpark 4\.0 .*is 3\.5\.9.*read_'):
        register(session)
    with pytest.raises(MissingExtraError, match=r"PravegaDataSource needs PySpark 4\.0"):
        spark_adapter.__getattr__("PravegaDataSource")
    with pytest.raises(AttributeError, match="no attribute 'Pravega'"):
        spark_adapter.__getattr__("Pravega")


@pytest.mark.parametrize("missing", ["pyspark", "py4j", "pyarrow"])
@pytest.mark.parametrize("module", ["", ".archives", ".catalog", ".schemas", ".telemetry"])
def test_a_missing_package_names_the_extra(module: str, missing: str) -> None:
    program = f"""
import sys
sys.modules[{missing!r}] = None
from pravega_wire.errors import MissingExtraError
try:
    import spark_adapter{module}
except MissingExtraError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout.endswith("pip install 'pravega-wire[spark]'\n"), done.stderr
    assert missing in done.stdout


def test_a_session_is_not_taken_for_a_context() -> None:
    for wrong in (None, object(), "local"):
        context: Any = wrong
        with pytest.raises(InvalidArgumentError, match=r"not \w+: pass spark\.sparkContext"):
            read_rdd(context, CONFIG, "a/b")


def test_spark_connect_is_told_by_the_class() -> None:
    class Session:
        __module__ = "pyspark.sql.connect.session"

    class OnesOwn(Session):
        pass

    class Classic:
        __module__ = "pyspark.sql.session"

    of: Any
    for of in (Session(), OnesOwn()):
        assert versions.is_connect(of)
        with pytest.raises(InvalidArgumentError, match=r"^This does not work with Spark Connect: use that$"):
            versions.needs_classic(of, "This", "use that")
    of = Classic()
    assert not versions.is_connect(of)
    versions.needs_classic(of, "This", "use that")


@pytest.mark.skipif(not versions.HAS_DATA_SOURCES, reason="PySpark 3.5 has no data sources in Python")
def test_the_columns_of_a_read_are_told_without_the_client() -> None:
    """Spark starts a process that asks the data source for its columns, and another one that plans."""
    program = """
import sys
from spark_adapter.datasource import PravegaDataSource
options = {"controller": "tcp://localhost:9090", "stream": "a/b", "columns": "event,offset"}
print(PravegaDataSource(options).schema())
print([each for each in ("h2", "google.protobuf", "numpy", "pandas", "pyarrow", "ssl", "trio",
                         "pravega_wire.stream", "pravega_wire.protocol", "spark_adapter.exactly_once",
                         "spark_adapter.reading", "spark_adapter.writing") if each in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_what_a_worker_of_spark_reads_needs_no_pandas() -> None:
    """pyarrow imports it for its first scalar or array of a value of Python, which takes long."""
    program = """
import io, sys
from struct import pack
import pyarrow as pa
from pravega_wire import ScopedStream, SegmentRange
from pravega_wire.protocol.events import EventBatch
from spark_adapter.reading.arrow import _Columns, arrow_schema
columns = _Columns(SegmentRange(ScopedStream("a", "b"), 3, 100, 200), arrow_schema().names)
rows = []
with pa.ipc.new_stream(io.BytesIO(), arrow_schema()) as stream:
    for payloads in ([b"x", b"y"], [b"", b"abc"]):
        framed = b"".join(pack(">ii", 0, len(each)) + each for each in payloads)
        made = columns.of(EventBatch.unsplit("a/b/3.#epoch.0", memoryview(framed), 100))
        stream.write_batch(made)
        rows.append(made)
assert "pandas" not in sys.modules
print([row for each in rows for row in each.to_pylist()])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    same = {"scope": "a", "stream": "b", "segment_id": 3}
    found = [(b"x", 100), (b"y", 109), (b"", 100), (b"abc", 108)]
    assert ast.literal_eval(done.stdout) == [
        {"event": event, **same, "offset": offset} for event, offset in found
    ]
