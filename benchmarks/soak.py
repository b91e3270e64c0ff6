"""Runs writers on a failing cluster for a long time: ``python -m benchmarks.soak [--minutes 10] [--processes
4]``.

Segments are scaled up and down, connections are cut at random, links swallow everything for 5 to 60 seconds
in one direction or both, a segment store and the controller are killed and started again. In the end every
acknowledged event must be there once, in order per key. With ``--upgrade-from 0.12.0`` the cluster begins
with that version, and its stores and its controller become 0.13.0 one by one, all in the first two thirds of
the time. With ``--transactions`` the processes write transactions, half of them committed and half aborted,
and are killed themselves; the next process resumes by id.
"""

from __future__ import annotations

import argparse
import sys
import time
from functools import partial

from pravega_wire.testing import cluster
from tests.faults.drive import run_soak, run_transaction_soak


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--transactions", action="store_true")
    parser.add_argument("--upgrade-from", metavar="VERSION", help="not with --transactions")
    arguments = parser.parse_args()
    run = (
        run_transaction_soak
        if arguments.transactions
        else partial(run_soak, version="0.13.0" if arguments.upgrade_from else None)
    )
    started = time.monotonic()

    def say(text: str) -> None:
        print(f"[soak {time.monotonic() - started:5.0f} s] {text}", flush=True)

    with cluster(version=arguments.upgrade_from) as server:
        try:
            run(server, seconds=arguments.minutes * 60, processes=arguments.processes, say=say)
        except AssertionError as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
