"""``scripts/simulate``: see ``docs/simulation.md``."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import replace

from tests.simulation.teeth import TEETH, planted
from tests.simulation.workloads import WORKLOADS
from tests.simulation.world import FAULTS, Result, Settings, simulate


def one(settings: Settings, *, trace: bool = False) -> Result:
    return simulate(WORKLOADS[settings.workload], settings, sys.stdout if trace else None)


def shrink(failed: Result) -> Result:
    """Leave out as many faults as possible, first whole kinds of them, then single ones, and still fail."""
    best = failed
    for kind in FAULTS:
        found = one(replace(best.settings, without=best.settings.without | {kind}))
        if found.failure:
            best = found
    size = max(1, len(best.faults) // 2)
    while best.faults:
        numbers = [number for number, _, _ in best.faults]
        for start in range(0, len(numbers), size):
            part = frozenset(numbers[start : start + size])
            found = one(replace(best.settings, skipped=best.settings.skipped | part))
            if found.failure:
                best = found
                break
        else:
            if size == 1:
                break
            size = max(1, size // 2)
    return best


def told(result: Result, tooth: str | None = None) -> str:
    """Say how a run ended, and how it is run again.

    :param tooth: the defect that was planted.
    """
    settings = result.settings
    again = ["scripts/simulate", *(["--tooth", tooth] if tooth else [])]
    again += ["--workload", settings.workload, "--seed", str(settings.seed)]
    if settings.without:
        again += ["--without", ",".join(sorted(settings.without))]
    if settings.skipped:
        again += ["--skip", ",".join(map(str, sorted(settings.skipped)))]
    lines = [f"{settings.workload}, seed {settings.seed}: {result.failure or 'nothing is wrong'}"]
    lines += [f"  {time:9.3f}  fault {number}: {what}" for number, time, what in result.faults]
    lines.append(
        f"  {result.seconds:.1f} simulated seconds, {result.processor:.2f} of the processor, "
        f"{result.lines} events, trace {result.trace}"
    )
    if result.failure:
        lines.append(f"  again: {shlex.join(again)} [--trace] [--shrink]")
    return "\n".join(lines)


def _numbers(text: str) -> frozenset[int]:
    return frozenset(int(each) for each in text.split(",") if each)


def _kinds(text: str) -> frozenset[str]:
    kinds = frozenset(each for each in text.split(",") if each)
    if unknown := sorted(kinds.difference(FAULTS)):
        raise argparse.ArgumentTypeError(f"no kinds of faults: {unknown}; there are {', '.join(FAULTS)}")
    return kinds


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="scripts/simulate",
        description="Run the client in a simulated world. Without --seed, new seeds are tried.",
    )
    parser.add_argument("--workload", choices=sorted(WORKLOADS), help="default: all, in turns")
    parser.add_argument("--seed", type=int, help="replay this one")
    parser.add_argument("--trace", action="store_true", help="print all that happens")
    parser.add_argument("--shrink", action="store_true", help="leave out faults as long as it fails")
    parser.add_argument("--without", type=_kinds, default=frozenset(), help="kinds of faults that are off")
    parser.add_argument("--skip", type=_numbers, default=frozenset(), help="numbers of faults left out")
    parser.add_argument("--first", type=int, default=None, help="first of the new seeds; default: the time")
    parser.add_argument("--seeds", type=int, help="how many of each workload; default: as --minutes says")
    parser.add_argument("--minutes", type=float, default=1.0, help="for how long; default: 1")
    parser.add_argument("--twice", action="store_true", help="run each seed twice and compare the traces")
    parser.add_argument("--tooth", choices=sorted(TEETH), help="plant this defect")
    parser.add_argument("--keep-going", action="store_true", help="go on after a failure")
    parser.add_argument("--json", action="store_true", help="print a line of JSON for each run")
    arguments = parser.parse_args(words)
    if arguments.seed is not None and arguments.workload is None:
        parser.error("--seed needs --workload: a seed is one run of one workload")
    if arguments.seed is None and (arguments.trace or arguments.shrink or arguments.skip):
        parser.error("--trace, --shrink and --skip need --seed and --workload: they are for one run")
    if not (arguments.minutes > 0 and (arguments.seeds is None or arguments.seeds > 0)):
        parser.error("--minutes and --seeds must be more than 0")
    with planted(arguments.tooth):
        return _run(arguments)


def _run(arguments: argparse.Namespace) -> int:
    without = arguments.without
    if arguments.seed is not None:
        settings = Settings(arguments.workload, arguments.seed, without, arguments.skip)
        result = one(settings, trace=arguments.trace)
        if result.failure and arguments.shrink:
            result = shrink(result)
        print(told(result, arguments.tooth))
        if result.error is not None and arguments.trace:
            traceback.print_exception(result.error)
        return 1 if result.failure else 0
    names = [arguments.workload] if arguments.workload else sorted(WORKLOADS)
    first = int(time.time()) % 1_000_000_000 if arguments.first is None else arguments.first
    end = time.monotonic() + 60 * arguments.minutes
    failures = runs = 0
    simulated = processor = 0.0
    seed = first
    while (seed - first < arguments.seeds) if arguments.seeds else (time.monotonic() < end):
        for name in names:
            result = one(Settings(name, seed, without))
            runs += 1
            simulated, processor = simulated + result.seconds, processor + result.processor
            if arguments.twice and not result.failure:
                again = one(Settings(name, seed, without))
                if again.trace != result.trace:
                    result.failure = f"not the same twice: {result.trace} and {again.trace}"
            if arguments.json:
                print(json.dumps({
                    "workload": name, "seed": seed, "trace": result.trace, "failure": result.failure,
                    "seconds": round(result.seconds, 3), "processor": round(result.processor, 3),
                }))  # fmt: skip
            if result.failure:
                failures += 1
                if not arguments.json:
                    print(told(result, arguments.tooth))
                if not arguments.keep_going:
                    return 1
        seed += 1
    print(
        f"{runs} runs, {failures} failed; seeds {first} to {seed - 1}; {simulated:.0f} simulated seconds in "
        f"{processor:.0f} of the processor ({simulated / max(processor, 1e-9):.0f} in one)",
        file=sys.stderr,
    )
    return 1 if failures else 0


if __name__ == "__main__":
    raise SystemExit(main())
