"""The image of ``examples/spark/image``, run as Kubernetes runs a driver, but without Kubernetes.

Its base is a stand-in (``tests/container/spark``). Tasks run in the workers of a standalone cluster, which
are containers of the same image and know no secret.
"""

from __future__ import annotations

import base64
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyspark
import pytest

from pravega_wire import sync
from pravega_wire.testing import PravegaServer, standalone

ROOT = Path(__file__).resolve().parents[2]
BASE, IMAGE = "pravega-wire-test/spark", "pravega-wire-test/job"
DISTRIBUTION = ("bin", "jars", "python", "sbin")
SPARK_UID = 185
EVENTS = [f"key-{number % 7},{number}".encode() for number in range(1000)]

PROPERTIES = """
spark.master                    spark://127.0.0.1:7077
spark.scheduler.minRegisteredResourcesRatio 1.0
spark.scheduler.maxRegisteredResourcesWaitingTime 300s
spark.cores.max                 2
spark.driver.memory             512m
spark.driver.host               127.0.0.1
spark.executor.memory           512m
spark.driver.extraJavaOptions   -XX:TieredStopAtLevel=1
spark.executor.extraJavaOptions -XX:TieredStopAtLevel=1
spark.python.daemon.module      spark_adapter.daemon
spark.sql.shuffle.partitions    2
# Executors of one address are in two containers, each with its own files.
spark.shuffle.readHostLocalDisk false
spark.ui.enabled                false
"""


def docker(*arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        ["docker", *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    assert done.returncode == 0 or not check, done.stdout[-6000:]
    return done


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """What the Dockerfile makes, unchanged, of the stand-in."""
    context = tmp_path_factory.mktemp("spark-image")
    shutil.copytree(ROOT / "tests" / "container" / "spark", context, dirs_exist_ok=True)
    for name in DISTRIBUTION:
        shutil.copytree(
            Path(pyspark.__file__).parent / name,
            context / "distribution" / name,
            ignore=shutil.ignore_patterns("__pycache__"),
        )
    shutil.copytree(os.environ["PRAVEGA_CONTAINER_WHEELS"], context / "wheels")
    docker("build", "--tag", BASE, str(context))
    shutil.rmtree(context)
    docker("build", "--tag", IMAGE, "--build-arg", f"BASE={BASE}", str(ROOT / "examples" / "spark" / "image"))
    yield IMAGE
    docker("image", "rm", "--force", IMAGE, BASE, check=False)


@pytest.fixture(scope="module")
def server() -> Iterator[PravegaServer]:
    """It demands an account, so that the secret matters."""
    with standalone(kind="jars", auth=True, memory="512m", cache_bytes=128 << 20) as found:
        yield found


@pytest.fixture(scope="module")
def workers(image: str, until: Callable[[Callable[[], Any], str], Any]) -> Iterator[tuple[str, ...]]:
    """Two containers that wait for executors to run; both have registered with a third, the master."""
    addresses = ("--host", "127.0.0.1", "--webui-port", "0")
    # Nothing else in this network uses the port.
    master = ("org.apache.spark.deploy.master.Master", *addresses, "--port", "7077")
    sizes = ("--cores", "1", "--memory", "1g")
    worker = ("org.apache.spark.deploy.worker.Worker", *addresses, *sizes, "spark://127.0.0.1:7077")
    with ExitStack() as stack:
        names = []
        for words in (master, worker, worker):
            started = docker(
                *("run", "--detach", "--network", "host", "--env", "SPARK_LOCAL_IP=127.0.0.1"),
                *(image, "/opt/spark/bin/spark-class", *words),
            )
            names.append(started.stdout.strip())
            stack.callback(docker, "rm", "--force", names[-1], check=False)
        until(lambda: docker("logs", names[0]).stdout.count("Registering worker") == 2, "two workers")
        yield tuple(names[1:])


@dataclass
class Driver:
    """A container as the pod of a driver: its arguments, its properties and its environment."""

    image: str
    directory: Path
    server: PravegaServer

    def __call__(self, *arguments: str, secret: bool = True) -> subprocess.CompletedProcess[str]:
        configuration, checkpoints = self.directory / "conf", self.directory / "checkpoints"
        for each in (configuration, checkpoints):
            each.mkdir(exist_ok=True)
        os.chown(checkpoints, SPARK_UID, SPARK_UID)
        (configuration / "spark.properties").write_text(PROPERTIES)
        environment = {
            "PRAVEGA_CONTROLLER_URI": self.server.controller_uri,
            "SPARK_CONF_DIR": "/opt/spark/conf",
            "SPARK_DRIVER_BIND_ADDRESS": "127.0.0.1",
            "SPARK_LOCAL_IP": "127.0.0.1",  # there is no network but this, and no name server
        }
        if secret:
            account = f"{self.server.username}:{self.server.password}".encode()
            environment["pravega_client_auth_method"] = "Basic"
            environment["pravega_client_auth_token"] = base64.b64encode(account).decode()
        variables = self.directory / "environment"
        variables.write_text("".join(f"{name}={value}\n" for name, value in environment.items()))
        return docker(
            *("run", "--rm", "--network", "host", "--env-file", str(variables)),
            *("--volume", f"{configuration}:/opt/spark/conf:ro", "--volume", f"{checkpoints}:/checkpoints"),
            *(self.image, "driver", "--properties-file", "/opt/spark/conf/spark.properties"),
            *("--class", "org.apache.spark.deploy.PythonRunner", "local:///app/job.py", *arguments),
            check=False,
        )


@pytest.fixture
def driver(image: str, server: PravegaServer, workers: tuple[str, ...], tmp_path: Path) -> Driver:
    return Driver(image, tmp_path, server)


def test_it_runs_as_spark_s_user_with_a_python_that_has_the_packages(image: str) -> None:
    program = "import os, pandas, pyarrow, pravega_wire; print(os.getuid(), pravega_wire.__file__)"
    uid, place = docker("run", "--rm", image, "python3", "-c", program).stdout.split()
    assert int(uid) == SPARK_UID
    assert place.startswith("/usr/")


def test_a_driver_with_a_secret_copies_each_event_once(
    driver: Driver, server: PravegaServer, workers: tuple[str, ...]
) -> None:
    with sync.open_client(server.config("image")) as client:
        client.create_scope("image")
        client.create_stream("from", 4)
        with client.event_writer("from") as writer:
            writer.write_events(EVENTS)

        first = driver("image/from", "image/to", "/checkpoints/copy")
        assert first.returncode == 0, first.stdout[-6000:]
        assert "image/to: 1000 events by the format, 1000 by read_df" in first.stdout

        with client.event_writer("from") as writer:
            writer.write_events([b"key-0,more"])
        # Another container goes on where the first has stopped.
        second = driver("image/from", "image/to", "/checkpoints/copy")
        assert second.returncode == 0, second.stdout[-6000:]
        copied = [bytes(event) for batch in client.read_events("to") for event in batch]
    assert sorted(copied) == sorted([*EVENTS, b"key-0,more"])
    for shown in (first.stdout, second.stdout, *(docker("logs", each).stdout for each in workers)):
        assert str(server.password) not in shown
    for each in workers:
        # One executor at least for each of the two drivers.
        assert docker("logs", each).stdout.count("Asked to launch executor") >= 2


def test_a_driver_without_the_secret_is_refused(driver: Driver) -> None:
    ended = driver("image/from", "image/to", "/checkpoints/none", secret=False)
    assert ended.returncode != 0
    assert "AuthenticationError" in ended.stdout
