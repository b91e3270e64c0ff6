"""Cases of :mod:`benchmarks.spark_kills`: what is done to the drivers of a job, and what shows that it
happened.

Each takes a :class:`~tests.spark.killing.Job` that nobody has run yet, disturbs it, and lets it come to its
end. The caller asks for the verdict. A case whose disturbance did not happen raises ``NotShownError``.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import UUID

from spark_adapter import STEPS
from spark_adapter.exactly_once.ledger import Preparing, Staging
from tests.spark.cluster import executor_of, standalone_cluster
from tests.spark.helpers import ledger_records
from tests.spark.kill_hooks import Victim
from tests.spark.killing import ROOT, Job, NotShownError

__all__ = ["Case", "cases", "lease_runs_out", "two_drivers"]


def killed_at_steps(job: Job, victim: Victim, steps: Iterable[str] = STEPS) -> None:
    """One driver after the other is killed at the next step, in whatever batch that is; the last is not."""
    for step in steps:
        job.run_killed(step, victim)
    job.run_to_end()


def killed_at_random(job: Job, seed: int, rounds: int) -> None:
    """Drivers are killed some time after they began with a batch, each with another number of partitions."""
    dice = random.Random(seed)
    for _ in range(rounds):
        victim: Victim = dice.choice(("python", "jvm", "group"))
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


def killed_in_its_recovery(job: Job) -> None:
    """A batch is PREPARED by a driver that dies, and so do the next two at the steps that finish it."""
    job.run_killed("prepared", "group")
    job.run_killed("committed", "group")
    job.run_killed("visible", "group")
    job.run_to_end()


FEW_ROWS_AT_A_TIME = {"spark.sql.execution.arrow.maxRecordsPerBatch": "20", "spark.buffer.size": "1024"}
"""So that rows come to the writer while those behind them are stalled."""


def worker_dies(job: Job, how: str) -> None:
    """A Python worker ends in mid-partition: by itself (``exit``), or it and all others by kill -9."""
    with job.driver(stall="exit" if how == "exit" else "wait", settings=FEW_ROWS_AT_A_TIME) as driver:
        driver.until("stalled")
        if how != "exit":
            # the writer behind the stalled rows has registered its staging segments: it is in the middle, too
            wait_for(lambda: staged(job), "an attempt that stages")
            workers = driver.python_workers()
            if not workers:
                raise NotShownError("there were no Python workers")
            for pid in workers:
                os.kill(pid, signal.SIGKILL)
            Path(job.plan.marker).touch()
        job.kills += 1
        if driver.ended() == 0:
            if not any(note["what"] == "second" for note in driver.heard):
                raise NotShownError("the task of the lost worker was not tried again")
            return
        # The daemon of the workers was killed too, and Spark cannot stop an idle worker without it. It tries
        # tasks again, but not the planning of a data source's next batch.
        if how == "exit" or job.plan.form != "writeStream" or "Stream closed" not in driver.output:
            raise AssertionError(f"a lost worker ended the query:\n{driver.output[-3000:]}")
        job.errors.append("Stream closed")
    job.run_to_end()


ON_A_CLUSTER = FEW_ROWS_AT_A_TIME | {
    "spark.executor.memory": "512m",
    "spark.executorEnv.PYTHONPATH": str(ROOT),
}


def executor_and_worker_die(job: Job) -> None:
    """On a standalone cluster: the executor of a stalled task dies, and in the next run its whole worker."""
    folder = job.folder / "cluster"
    folder.mkdir()
    with standalone_cluster(folder) as cluster:
        options: dict[str, Any] = {"master": cluster.uri, "stall": "wait", "settings": ON_A_CLUSTER}
        # it ends when Spark has its first batch on record: the next run would skip it, and stage nothing
        with job.driver(step="begin", act="group", at_batch=1, **options) as driver:
            stalled = driver.until("stalled")
            wait_for(lambda: staged(job), "an attempt that stages")
            os.kill(executor_of(int(stalled["pid"])), signal.SIGKILL)
            Path(job.plan.marker).touch()
            driver.until("killed", step="begin")
            job.kills += 2
        before = len(staged(job))
        marker = f"{job.plan.marker}-2"
        with job.driver(marker=marker, **options) as driver:
            stalled = driver.until("stalled")
            wait_for(lambda: len(staged(job)) > before, "an attempt that stages")
            cluster.lose_worker_of(int(stalled["pid"]))
            Path(marker).touch()
            job.kills += 1
            cluster.add_workers(1)
            if driver.ended() != 0:
                raise AssertionError(f"a lost worker ended the query:\n{driver.output[-3000:]}")


def second_attempts(job: Job) -> None:
    """A task stands still in mid-partition, and Spark runs a second attempt of it, which wins."""
    folder = job.folder / "cluster"
    folder.mkdir()
    settings = ON_A_CLUSTER | {
        "spark.speculation": "true",
        "spark.speculation.quantile": "0.5",
        "spark.speculation.multiplier": "1.0",
        "spark.speculation.minTaskRuntime": "0ms",
    }
    with standalone_cluster(folder, apart=True) as cluster:
        with job.driver(master=cluster.uri, stall="wait", settings=settings) as driver:
            driver.until("stalled")
            wait_for(lambda: staged(job), "an attempt that stages")
            driver.until("second")
            driver.until("stored")  # while the first attempt still stands, or is killed by Spark
            Path(job.plan.marker).touch()
            if driver.ended() != 0:
                raise AssertionError(f"a second attempt ended the query:\n{driver.output[-3000:]}")
    attempts = sum(record.batch == 0 for record in staged(job))
    if attempts <= job.plan.partitions:
        raise NotShownError(f"batch 0 was staged by {attempts} attempts only")


def claims(job: Job) -> list[UUID]:
    """The transactions that batches were claimed with, one after the other."""
    return [record.txn for record in ledger_records(job.client, job.ledger) if isinstance(record, Preparing)]


def staged(job: Job) -> list[Staging]:
    """Staging records in the ledger now; none if there is no ledger."""
    if not job.client.stream_exists(job.ledger):
        return []
    return [record for record in ledger_records(job.client, job.ledger) if isinstance(record, Staging)]


def wait_for(condition: Callable[[], object], what: str, seconds: float = 120.0) -> None:
    """Ask again and again: nobody tells."""
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            raise NotShownError(f"in {seconds} s there was not {what}")
        time.sleep(0.05)


def lease_runs_out(job: Job, step: str) -> None:
    """The Python process stands still for longer than the lease, and then goes on."""
    # nothing keeps the lease while Spark starts the process that commits: 10 s may be too short for that
    lease = 10_000 if job.plan.form == "foreachBatch" else 60_000
    with job.driver(step=step, act="stop", at_batch=1, lease_ms=lease) as driver:
        stopped = driver.until("stopping", step=step)
        txn = claims(job)[-1]
        wait_for(
            lambda: job.client.transaction_status(job.stream, txn).name in ("ABORTING", "ABORTED"),
            "a lease that ran out",
        )
        os.kill(int(stopped["pid"]), signal.SIGCONT)
        if driver.ended() != 0:
            if "TransactionAbortedError" not in driver.output:
                raise AssertionError(f"no typed error said that the lease ran out:\n{driver.output[-3000:]}")
            job.errors.append("TransactionAbortedError")
        elif claims(job).index(txn) == len(claims(job)) - 1:
            raise AssertionError("the driver went on as if its transaction were still there")
    job.run_to_end()


def two_drivers(job: Job, step: str) -> None:
    """A driver stands still; another with a copy of its checkpoint runs to the end; the first goes on."""
    copy = job.folder / "copy"
    with job.driver(step=step, act="pause", at_batch=1) as first:
        first.until("paused", step=step)
        shutil.copytree(job.checkpoint, copy)
        job.run_to_end(checkpoint=str(copy))
        first.go()
        status = first.ended()
        if status == 0:
            raise NotShownError("the first driver ended as if there had been no second")
        if "FencedError" not in first.output:
            raise AssertionError(f"the first driver was not told of the second:\n{first.output[-3000:]}")
        job.errors.append("FencedError")


def two_drivers_at_once(job: Job) -> None:
    """Two drivers with copies of one checkpoint, both running, until both have ended; then one to the end.

    It goes on with the checkpoint of a driver that came to the end, if there is one: the other one is older.
    """
    copy = job.folder / "copy"
    with job.driver(step="done", act="group", at_batch=0) as first:
        first.until("killed")
        first.ended()
    job.kills += 1
    shutil.copytree(job.checkpoint, copy)
    with job.driver() as one, job.driver(checkpoint=str(copy)) as other:
        one.until("batch")
        other.until("batch")
        ends = [(driver, driver.ended()) for driver in (one, other)]
    begun = [{note["batch"] for note in each.heard if note["what"] == "batch"} for each, _ in ends]
    ended = [driver.plan.checkpoint for driver, status in ends if status == 0]
    if not set.intersection(*begun):
        raise NotShownError(f"no batch was begun by both drivers: {begun}")
    for driver, status in ends:
        if status != 0 and "FencedError" in driver.output:
            job.errors.append("FencedError")
        elif status != 0 and "another driver" not in driver.output:
            raise AssertionError(f"ended with {status}:\n{driver.output[-3000:]}")
    job.run_to_end(checkpoint=(ended or [job.plan.checkpoint])[0])


def scaled_in_a_batch(job: Job, steps: Iterable[str] = ("claimed", "staged", "prepared")) -> None:
    """While a batch stands at a step the stream is scaled: up, down, up; its driver is killed later."""
    counts = (4, 2, 3)  # not below what the stream was made with
    steps = tuple(steps)
    for number, (step, count) in enumerate(zip(steps, counts, strict=True)):
        with job.driver(step=step, act="pause", at_batch=number + 1) as driver:
            driver.until("paused", step=step)
            scale(job, count)
            if number == len(steps) - 1:
                driver.kill("group")
                job.kills += 1
            else:
                driver.go()
                driver.until("stored")
                driver.kill("group")
                job.kills += 1
            driver.ended()
    job.run_to_end()


def scale(job: Job, count: int) -> None:
    """Replace all active segments by so many."""
    seal = [each.segment_id for each in job.client.active_segments(job.stream)]
    edges = [number / count for number in range(count)] + [1.0]
    job.client.scale_stream(job.stream, seal, list(pairwise(edges)))


def truncated_behind(job: Job) -> None:
    """While a batch stands before or after its point of no return, what was read is truncated away."""
    for number, step in enumerate(("staged", "prepared")):
        with job.driver(step=step, act="pause", at_batch=number + 1) as driver:
            driver.until("paused", step=step)
            with job.looker.held():
                job.client.truncate_stream(job.stream, job.looker.cut)
            driver.kill("group")
            job.kills += 1
            driver.ended()
    if job.client.head(job.stream) == job.start:
        raise NotShownError("the stream was not truncated")
    job.run_to_end()


def stored_again(job: Job) -> list[dict[str, Any]]:
    """What the sink said of the last batch, which Spark runs again.

    The last file of the checkpoint's commits is deleted after a clean run, and the query started again.
    """
    job.run_to_end()
    commits = job.checkpoint / "commits"
    last = commits / str(job.batches - 1)
    last.unlink()
    (commits / f".{last.name}.crc").unlink(missing_ok=True)
    return [note for note in job.run_to_end().heard if note["what"] == "stored"]


def commit_log_lost(job: Job) -> None:
    """As :func:`stored_again` does."""
    outcomes = [note["outcome"] for note in stored_again(job)]
    if outcomes != ["skipped"]:
        raise NotShownError(f"Spark did not ask for the last batch again: {outcomes}")


# --- all of them --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """A name, what is done, and how much input it needs."""

    name: str
    run: Callable[[Job], None]
    batches: int = 4
    options: dict[str, Any] = field(default_factory=dict)


def cases(seed: int, rounds: int) -> list[Case]:
    """All cases of the sink; the random ones with that seed and number of kills."""
    rows = {"by_rows": True}
    found = [
        Case(f"{victim} killed at each step", lambda job, v=victim: killed_at_steps(job, v), 12, rows)
        for victim in ("python", "jvm", "group")
    ]
    found += [
        Case("killed at random", lambda job: killed_at_random(job, seed, rounds), 2 * rounds + 2, rows),
        Case("killed in its recovery", killed_in_its_recovery, 3, rows),
        Case("worker exits in mid-partition", lambda job: worker_dies(job, "exit"), 3),
        Case("all workers killed in mid-partition", lambda job: worker_dies(job, "kill"), 3),
        *(
            Case(f"lease runs out at {step}", lambda job, s=step: lease_runs_out(job, s), 3, rows)
            for step in ("claimed", "merged", "prepared")
        ),
        *(
            Case(
                f"second driver while the first stands at {step}",
                lambda job, s=step: two_drivers(job, s),
                3,
                rows,
            )
            for step in ("staged", "prepared", "done")
        ),
        Case("two drivers at once", two_drivers_at_once, 6, rows),
        Case("scaled in a batch", scaled_in_a_batch, 5, rows),
        Case("truncated behind a batch", truncated_behind, 4, rows),
        Case("executor, then worker killed in mid-partition", executor_and_worker_die, 3),
        Case("second attempt of a stalled task", second_attempts, 2),
        Case("last commit log entry deleted", commit_log_lost, 3),
    ]
    return found
