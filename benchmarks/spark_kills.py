"""Kills Spark drivers at every step, and counts lost and duplicated events: ``python -m
benchmarks.spark_kills``.

Drivers are processes of their own, the server is a real one, standalone. A reader looks at the stream all the
time. ``--sink connector`` kills drivers of the official Scala connector. ``--rounds`` is how many drivers are
killed at random moments, ``--only`` a part of a case's name.
Prints a line for each case, then JSON, then a table in Markdown; ``--rows`` keeps what an interrupted run has
shown.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

from benchmarks.connector_env import connector_java, connector_python
from pravega_wire import PravegaConfig
from pravega_wire.sync import PravegaClient, open_client
from pravega_wire.testing import standalone
from tests.spark.kill_cases import Case, cases
from tests.spark.kill_connector import Connector, connector_cases
from tests.spark.kill_reading import ReadCase, ReadJob, reading_cases
from tests.spark.killing import Job, NotShownError


def run_case(client: PravegaClient, case: Case, folder: Path, *, form: str, **options: Any) -> dict[str, Any]:
    """Run a case, and check the contents of its stream."""
    made = Job(client, folder, batches=case.batches, form=form, **options, **case.options)
    return judged(case, form, made)


def run_reading(client: PravegaClient, case: ReadCase, folder: Path, archive: str) -> dict[str, Any]:
    """Run a case of the source, and compare what was read with what was written."""
    return judged(case, "source", ReadJob(client, folder, archive=archive, **case.options))


def judged(case: Any, form: str, made: Job | ReadJob) -> dict[str, Any]:
    started = time.monotonic()
    row: dict[str, Any] = {"case": case.name, "form": form}
    with made as job:
        try:
            case.run(job)
            verdict = job.verdict()
        except NotShownError as error:
            row |= {"result": "not shown", "why": str(error)}
        except Exception:
            row |= {"result": "failed", "why": traceback.format_exc()}
        else:
            faults = verdict.faults()
            row |= {"result": "wrong" if faults else "exact", "faults": faults, **asdict(verdict)}
    return row | {"seconds": round(time.monotonic() - started, 1)}


def table_of_reading(rows: list[dict[str, Any]]) -> str:
    """Return the results of the source as Markdown."""
    names = (
        "starts", "kills", "scales", "truncations", "batches", "events", "lost", "doubled", "disordered_keys",
        "over_limit", "run_again", "different",
    )  # fmt: skip
    lines = [
        "| case | drivers | kills | scales | truncations | batches | events | lost | doubled "
        "| keys out of order | batches over the limit | batches run again | of these different |",
        "|---" + "|---:" * len(names) + "|",
    ]
    for row in rows:
        shown = row["result"] in ("exact", "wrong")
        numbers = [str(row[name]) for name in names] if shown else [row["result"], *[""] * (len(names) - 1)]
        lines.append(f"| {row['case']} | {' | '.join(numbers)} |")
    return "\n".join(lines)


def table_of(rows: list[dict[str, Any]]) -> str:
    """Return the results as Markdown."""
    lines = [
        "| case | drivers | kills | batches | events | lost | doubled | keys out of order | looks "
        "| half batches | left behind |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---|",
    ]
    for row in rows:
        if row["result"] not in ("exact", "wrong"):
            lines.append(f"| {row['case']} | {row['result']} |" + " |" * 9)
            continue
        # the connector keeps no ledger that says what it has begun
        unseen = row["form"] == "connector"
        left = "not looked at" if unseen else row["staging_left"] + row["open_transactions"]
        errors = ", ".join(f"`{name}`" for name in dict.fromkeys(row["errors"]))
        names = (
            "starts", "kills", "batches", "events", "lost", "doubled", "disordered_keys", "looks",
            "half_batches",
        )  # fmt: skip
        numbers = " | ".join(str(row[name]) for name in names)
        case = f"{row['case']} ({errors})" if errors else row["case"]
        lines.append(f"| {case} | {numbers} | {left or 'nothing'} |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.spark_kills", description=__doc__.splitlines()[0]
    )
    parser.add_argument(
        "--sink", choices=["foreachBatch", "writeStream", "connector"], default="foreachBatch"
    )
    parser.add_argument("--spark-connector", type=Path, help="jar of the Scala connector")
    parser.add_argument("--connector-python", type=Path, help="with PySpark 3.5; default: one is made")
    parser.add_argument("--source", action="store_true", help="kill queries that read, not those that write")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="+", default=[""], help="parts of names of cases")
    parser.add_argument(
        "--archive",
        default="",
        help="Java's shared archive of Spark's classes (java -XX:ArchiveClassesAtExit)",
    )
    parser.add_argument("--rows", type=Path, help="file for the result of each case, a JSON object in a line")
    arguments = parser.parse_args()
    if (arguments.sink == "connector") != (arguments.spark_connector is not None):
        parser.error("--sink connector needs --spark-connector with its jar, and nothing else does")
    rows: list[dict[str, Any]] = []
    seed, rounds, archive = arguments.seed, arguments.rounds, arguments.archive
    connector = None
    if arguments.sink == "connector":
        python = arguments.connector_python or connector_python()
        connector = Connector(arguments.spark_connector.resolve(), python, connector_java())
    found = cases(seed, rounds) if connector is None else connector_cases(connector, seed, rounds)
    with standalone() as server, tempfile.TemporaryDirectory() as folder:
        scope = f"kills-{uuid4().hex[:8]}"
        config = PravegaConfig.from_defaults(controller_uri=server.controller_uri, scope=scope, env={})
        with open_client(config) as client:
            client.create_scope(scope)
            todo: list[tuple[str, Callable[..., dict[str, Any]]]] = [
                (case.name, partial(run_case, client, case, form=arguments.sink, archive=archive))
                for case in found
            ]
            if arguments.source:
                todo = [
                    (case.name, partial(run_reading, client, case, archive=archive))
                    for case in reading_cases(seed, rounds)
                ]
            for number, (name, run) in enumerate(todo):
                if not any(part in name for part in arguments.only):
                    continue
                row = run(folder=Path(folder) / str(number))
                rows.append(row)
                if arguments.rows is not None:
                    with arguments.rows.open("a") as kept:
                        kept.write(json.dumps(row) + "\n")
                print(f"{row['seconds']:6.1f} s  {row['result']:9}  {name}", flush=True)
                if row["result"] != "exact":
                    print(row.get("why") or row["faults"], flush=True)
    print(json.dumps(rows))
    print(table_of_reading(rows) if arguments.source else table_of(rows))
    return 0 if rows and all(row["result"] == "exact" for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
