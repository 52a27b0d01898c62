#!/usr/bin/env python3
"""Plants small mistakes in the library and runs the tests that should notice them (docs/testing.md).

  tools/mutate.py coverage            records which lines each test runs (once; later calls add new tests)
  tools/mutate.py run --count 90      tries mutants until 90 in all have been tried, and can be interrupted at any time
  tools/mutate.py run --again         tries those that have survived once more, after assertions were added
  tools/mutate.py list                prints the survivors that have no verdict
  tools/mutate.py report              writes the table of docs/testing.md

The build must be up to date. Neither sources nor build are changed: mutants live in the folder --work.
"""
import argparse
import concurrent.futures
import datetime
import fcntl
import math
import os
import pathlib
import re
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from mutants.build import Build  # pylint: disable=wrong-import-position
from mutants.coverage import Coverage, Recorder, sources
from mutants.operators import FOLDERS, mutants_of, sample
from mutants.score import Results, is_open, table, verdicts, write_table
from mutants.trial import Trial, lines_to_mutate


def duration_s(text):
    match = re.fullmatch(r"(\d+)([smh])", text)
    if not match:
        raise argparse.ArgumentTypeError("a duration is like 90s, 30m or 2h")
    return int(match[1]) * {"s": 1, "m": 60, "h": 3600}[match[2]]


def parse():
    root = pathlib.Path(__file__).resolve().parent.parent
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=pathlib.Path, default=root, help="the repository")
    parser.add_argument("--build", type=pathlib.Path, help="a build of it, by default build/release")
    parser.add_argument("--work", type=pathlib.Path, help="the folder for records and mutants, by default build/mutants")
    parser.add_argument("--jobs", type=int, default=1, help="mutants or objects at a time")
    commands = parser.add_subparsers(dest="command", required=True)
    coverage = commands.add_parser("coverage", help="record which lines each test runs")
    coverage.add_argument("--only", default="", metavar="REGEX", help="programs and tests ('PROGRAM TEST') to record")
    coverage.add_argument("--folder", action="append", choices=FOLDERS, help="only lines of this folder; may be repeated")
    coverage.add_argument("--again", action="store_true", help="record tests that have been recorded")
    coverage.add_argument("--limit", type=duration_s, default=60, help="slower tests are left out")
    run = commands.add_parser("run", help="try mutants")
    run.add_argument("--seed", type=int, default=1)
    run.add_argument("--count", type=int, default=90, help="mutants in all that differ from the original, as many in each folder")
    run.add_argument("--folder", action="append", choices=FOLDERS, help="only this folder; may be repeated")
    run.add_argument("--budget", type=duration_s, default=None, help="no mutant is begun after this time")
    run.add_argument("--again", action="store_true", help="try the survivors once more")
    run.add_argument("--id", action="append", help="try only this mutant of the results once more")
    run.add_argument("--tests-s", type=float, default=300, help="seconds of tests (as recorded) for one mutant")
    run.add_argument("--own", action="store_true", help="without a record: run the tests of the mutant's folder, and save nothing")
    commands.add_parser("list", help="print the survivors")
    report = commands.add_parser("report", help="write the table")
    report.add_argument("--print", action="store_true", help="print it only")
    arguments = parser.parse_args()
    arguments.root = arguments.root.resolve()
    arguments.build = (arguments.build or arguments.root / "build/release").resolve()
    arguments.work = (arguments.work or arguments.root / "build/mutants").resolve()
    arguments.work.mkdir(parents=True, exist_ok=True)
    return arguments


class Queue:
    """Hands out mutants, from the folder with the fewest so far, until `count` of all folders differ from the original."""

    def __init__(self, per_folder, results, count, deadline):
        self.count, self.deadline, self.lock = count, deadline, threading.Lock()
        self.waiting, self.valid = {}, {}
        for folder, mutants in per_folder.items():
            self.waiting[folder] = [m for m in mutants if m.key not in results.rows][::-1]
            self.valid[folder] = sum(results.rows[m.key]["status"] not in ("equivalent", "unbuildable") for m in mutants if m.key in results.rows)

    def take(self):
        with self.lock:
            open_folders = [f for f, left in self.waiting.items() if left]
            if not open_folders or sum(self.valid.values()) >= self.count or self.deadline is not None and time.monotonic() > self.deadline:
                return None
            folder = min(open_folders, key=lambda f: self.valid[f])
            self.valid[folder] += 1
            return self.waiting[folder].pop()

    def give_back(self, mutant):
        """Says that a mutant does not count, because it does not compile or computes the same."""
        with self.lock:
            self.valid[mutant.file.split("/")[1]] -= 1


def known_mutants(root, results):
    """Returns {key: mutant} of the results whose lines are still there."""
    found = {}
    for name in {row["file"] for row in results.rows.values()}:
        if (root / name).exists():
            found |= {m.key: m for line in mutants_of(name, (root / name).read_text()) for m in line}
    return {key: found[key] for key in results.rows if key in found}


def current_build(arguments):
    build = Build(arguments.root, arguments.build)
    if old := build.old_objects():
        sys.exit(f"{arguments.build}: build it first: {len(old)} objects are older than their sources, such as {min(old)}")
    return build


def try_mutants(arguments, results, given):
    build = current_build(arguments)
    coverage = Coverage(arguments.work, arguments.root, build.tests)
    if not coverage.rows and not arguments.own:
        sys.exit(f"{arguments.work}: no test is recorded: run `tools/mutate.py coverage` first")
    folders = arguments.folder or FOLDERS
    chosen = {}
    if arguments.again or arguments.id:
        for key, mutant in known_mutants(arguments.root, results).items():
            folder = mutant.file.split("/")[1]
            if folder in folders and (mutant.id in arguments.id if arguments.id else is_open(results.rows[key], given)):
                chosen.setdefault(folder, []).append(mutant)
        results_before, count = Results(None), math.inf
    else:
        for folder in folders:
            files = {n: p for n, p in sources(arguments.root).items() if n.split("/")[1] == folder}
            chosen[folder] = sample(lines_to_mutate(build, files, mutants_of), arguments.seed)
        results_before, count = results, arguments.count
    deadline = None if arguments.budget is None else time.monotonic() + arguments.budget
    queue = Queue(chosen, results_before, count, deadline)
    trial = Trial(build, coverage, arguments.work, arguments.tests_s, arguments.own)
    saving, counts, begin = threading.Lock(), {}, time.monotonic()

    def work(worker):
        while (mutant := queue.take()) is not None:
            row = trial.try_mutant(mutant, worker)
            if row["status"] in ("equivalent", "unbuildable"):
                queue.give_back(mutant)
            with saving:
                counts[row["status"]] = counts.get(row["status"], 0) + 1
                results.add(mutant, {**row, "seed": arguments.seed, "date": datetime.date.today().isoformat()})
                what = row.get("test") or row.get("why") or ""
                print(f"{row['status']:11} {mutant.id} {mutant.file}:{mutant.line + 1}: {mutant.operator}: "
                      f"{mutant.old} -> {mutant.new}  [{row['seconds']:.0f} s] {what}", flush=True)
                if row["status"] in ("survived", "uncovered"):
                    print(f"            {mutant.text}", flush=True)

    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        for future in [pool.submit(work, worker) for worker in range(arguments.jobs)]:
            future.result()
    minutes = (time.monotonic() - begin) / 60
    print(f"mutants: {sum(counts.values())} in {minutes:.1f} minutes: "
          + ", ".join(f"{count} {status}" for status, count in sorted(counts.items())))


def main():
    arguments = parse()
    own = arguments.root / "tests/mutants"
    own_rows = None if getattr(arguments, "own", False) else own / "results.jsonl"
    results, given = Results(own_rows), verdicts(own / "verdicts.toml")
    if arguments.command == "coverage":
        Recorder(current_build(arguments), arguments.work).record(arguments.folder or FOLDERS, arguments.only, arguments.again, arguments.limit, arguments.jobs)
    elif arguments.command == "run":
        with (arguments.work / "lock").open("w") as lock:  # two runs would overwrite each other's results
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                sys.exit(f"{arguments.work}: another run uses this folder")
            try_mutants(arguments, results, given)
    else:
        known = known_mutants(arguments.root, results)
        rows = [results.rows[key] for key in known]
        if arguments.command == "list":
            for key, mutant in known.items():
                if is_open(results.rows[key], given):
                    row = results.rows[key]
                    note = f" ({row['left_out']} tests were left out for time)" if "left_out" in row else ""
                    print(f"{row['status']:9} {mutant.id} {mutant.file}:{mutant.line + 1}: {mutant.old} -> {mutant.new}{note}\n"
                          f"          {mutant.text}")
        elif arguments.print:
            print(table(rows, given))
        else:
            write_table(arguments.root / "docs/testing.md", table(rows, given))


if __name__ == "__main__":
    os.umask(0o022)
    main()
