"""Cases of :mod:`benchmarks.spark_kills` for the official Scala connector, beside ours where one applies."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.spark.kill_cases import Case, stored_again
from tests.spark.kill_hooks import Victim
from tests.spark.killing import Job, NotShownError, Program

__all__ = ["Connector", "connector_cases"]

CRASH = "CrashBeforeCommitLog"


@dataclass(frozen=True)
class Connector:
    """How its drivers are started.

    :ivar jar: the connector's. :ivar python: one with PySpark 3.5. :ivar java_home: a Java for it.
    """

    jar: Path
    python: Path
    java_home: Path

    @property
    def program(self) -> Program:
        """What a job runs."""
        return Program(
            "tests.spark.kill_connector_driver", str(self.python), {"JAVA_HOME": str(self.java_home)}
        )

    def compiled(self, folder: Path) -> dict[str, str]:
        """Compile the class that kills before the commit log; the settings with which Spark uses it."""
        shown = subprocess.run(
            [str(self.python), "-c", "import pyspark; print(pyspark.__path__[0])"],
            stdout=subprocess.PIPE, text=True, check=True,
        )  # fmt: skip
        javac = shutil.which("javac", path=str(self.java_home / "bin")) or shutil.which("javac") or "javac"
        folder.mkdir()
        subprocess.run(
            [
                javac, "--release", "11", "-nowarn", "-d", str(folder),
                "-cp", f"{shown.stdout.strip()}/jars/*",
                str(Path(__file__).with_name(f"{CRASH}.java")),
            ],
            check=True,
        )  # fmt: skip
        return {
            "spark.driver.extraClassPath": str(folder),
            "spark.sql.streaming.checkpointFileManagerClass": CRASH,
        }


def killed_before_the_commit_log(job: Job, connector: Connector) -> None:
    """The driver dies between the sink's commit of a batch and Spark's entry in the commit log."""
    settings = job.plan.settings | connector.compiled(job.folder / "classes")
    with job.driver(settings=settings, environment={"CRASH_BATCH": "1"}) as driver:
        driver.until("batch", batch=1)
        if driver.ended() == 0:
            raise NotShownError("the driver was not killed")
    job.kills += 1
    if (job.checkpoint / "commits" / "1").exists():
        raise NotShownError("the batch was in the commit log when its driver died")
    job.run_to_end()


def commit_log_lost(job: Job) -> None:
    """As :func:`stored_again` does."""
    if not any(note["batch"] == job.batches - 1 for note in stored_again(job)):
        raise NotShownError("Spark did not run the last batch again")


def killed_at_random(job: Job, seed: int, rounds: int) -> None:
    """Drivers are killed some time after they began with a batch."""
    dice = random.Random(seed)
    for _ in range(rounds):
        victim: Victim = dice.choice(("jvm", "group"))
        with job.driver(partitions=dice.randint(1, 5)) as driver:
            driver.until("batch")
            driver.listen(dice.uniform(0.0, 4.0))
            if driver.heard[-1]["what"] == "finished":
                break  # nothing left to disturb
            driver.kill(victim)
            job.kills += 1
            driver.ended()
    if not job.kills:
        raise NotShownError("the input was stored before a driver was killed")
    job.run_to_end()


def connector_cases(connector: Connector, seed: int, rounds: int) -> list[Case]:
    """All cases, with the connector's programs and settings."""
    options = {"program": connector.program, "settings": {"spark.jars": os.fspath(connector.jar)}}
    found: list[tuple[str, Callable[[Job], None], int]] = [
        ("killed before the commit log", partial(killed_before_the_commit_log, connector=connector), 3),
        ("last commit log entry deleted", commit_log_lost, 3),
        ("killed at random", partial(killed_at_random, seed=seed, rounds=rounds), 2 * rounds + 2),
    ]
    return [Case(name, run, batches, dict(options)) for name, run, batches in found]
