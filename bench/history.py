#!/usr/bin/env python3
"""Keeps the speed of training steps per commit and machine, and finds a slowdown of 5 % between two commits.

  bench/history.py compare OLD NEW [--turns 9] [--clock step|cpu] [--preset P] [--steps N] [--set KEY=VALUE]...
  bench/history.py [--file FILE] show

compare builds both commits with the preset `release` in git worktrees under build/history; it keeps the two programs
there and removes the worktrees. Each turn runs `ingot bench step` once with NEW and twice with OLD, in an order that
changes from turn to turn. A pair's ratio is NEW's time over the first OLD's. The null arm is the second OLD over the
first: the same program twice, whose ratio shows what the machine does by itself. The result is the median ratio with
its interval of at least 95 % confidence from order statistics (the inverse of the sign test, which assumes no
distribution):
  no slowdown  the whole interval is below 1.05                                               exit code 0
  slowdown     the whole interval is above 1, and it reaches 1.05                             exit code 1
  undecided    neither holds, or the null arm's interval is not within 1/1.05 to 1.05         exit code 2
Without a slowdown, or with one of 5 %, the wrong one of the first two is said in at most 2.5 % of comparisons. More
turns make the interval shorter. --clock step compares the median step of each run; cpu compares the processor time of
whole runs, start included, which other programs on the machine disturb less. An error ends with exit code 3.

Each comparison adds one JSON line per commit to the file of the history (build/history/history.jsonl, or --file): the
machine, the commit, what was measured, the median step, and all runs. show prints them, oldest first. Medians of
different comparisons were not measured in alternation, so a difference between them is a reason to compare, no finding."""
import argparse
import datetime
import json
import os
import pathlib
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile

import stats

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDER = ROOT / "build/history"
THRESHOLD = 1.05
ORDERS = (("old", "new", "null"), ("null", "old", "new"), ("new", "null", "old"))
EXIT_CODES = {"no slowdown": 0, "slowdown": 1, "undecided": 2}
ERROR = 3


class HistoryError(Exception):
    pass


def verdict(ratios, null_ratios):
    """Says which of EXIT_CODES the ratios NEW / OLD show, if OLD / OLD has null_ratios."""
    null, ratio = stats.median_interval(null_ratios), stats.median_interval(ratios)
    if null.low <= 1 / THRESHOLD or null.high >= THRESHOLD:
        return "undecided"
    if ratio.high < THRESHOLD:
        return "no slowdown"
    return "slowdown" if ratio.low > 1 else "undecided"


def output_of(line, **options):
    """Returns what a program prints; an error shows the end of what it wrote."""
    try:
        done = subprocess.run(line, capture_output=True, text=True, check=False, **options)
    except OSError as error:
        raise HistoryError(f"cannot run {line[0]}: {error}") from error
    if done.returncode != 0:
        tail = "\n".join((done.stdout + done.stderr).splitlines()[-15:])
        raise HistoryError(f"{' '.join(map(str, line))} ended with {done.returncode}:\n{tail}")
    return done.stdout.strip()


def commit_of(name):
    return output_of(["git", "-C", ROOT, "rev-parse", "--verify", "--end-of-options", f"{name}^{{commit}}"])


def compiler():
    return output_of([os.environ.get("CXX", "c++"), "--version"]).splitlines()[0]


def build(commit):
    """Returns the program of a commit, built with the compiler of today."""
    folder = FOLDER / commit
    program, stamp = folder / "ingot", folder / "compiler.txt"
    if program.exists() and stamp.exists() and stamp.read_text(encoding="utf-8") == compiler():
        return program
    print(f"building {commit[:12]}", file=sys.stderr, flush=True)
    folder.mkdir(parents=True, exist_ok=True)
    tree = folder / "tree"
    if tree.exists():  # an interrupted build left it
        remove_tree(tree)
    output_of(["git", "-C", ROOT, "worktree", "add", "--force", "--detach", tree, commit])
    try:
        output_of(["cmake", "--preset", "release", "-DINGOT_TESTS=OFF", "-DINGOT_BENCH=OFF"], cwd=tree)
        output_of(["cmake", "--build", "--preset", "release", "-j", str(os.cpu_count()), "--target", "ingot"], cwd=tree)
        shutil.copy2(tree / "build/release/ingot", program)
        stamp.write_text(compiler(), encoding="utf-8")
    finally:
        remove_tree(tree)
    return program


def remove_tree(tree):
    subprocess.run(["git", "-C", ROOT, "worktree", "remove", "--force", tree], capture_output=True, check=False)
    shutil.rmtree(tree, ignore_errors=True)
    output_of(["git", "-C", ROOT, "worktree", "prune"])


def run(program, arguments, folder):
    """Returns the median step and the processor time of one run, in milliseconds."""
    line = [program, "bench", "step", arguments.preset, "--steps", str(arguments.steps), "--json"]
    line += [word for setting in arguments.set for word in ("--set", setting)]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    # Threads that wait yield their cores, so that processor time is work.
    text = output_of(line, cwd=folder, env=dict(os.environ, OMP_WAIT_POLICY="passive"))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    try:
        return {"step": float(json.loads(text)["step_ms"]), "cpu": 1000 * cpu_s}
    except (ValueError, KeyError, TypeError) as error:
        raise HistoryError(f"{program} bench step printed no step_ms: {text[:200]}") from error


def machine():
    names = [line.split(":", 1)[1].strip() for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines()
             if line.startswith("model name")]
    return {"cpu": names[0] if names else os.uname().machine, "cores": len(os.sched_getaffinity(0)),
            "system": os.uname().release, "compiler": compiler()}


def append(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write("".join(json.dumps(row) + "\n" for row in rows))


def read(path):
    """Returns the lines of a history; a broken line is an error that says where."""
    rows = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            row = json.loads(line)
            key = json.dumps([row["machine"], row["preset"], row["steps"], row["set"]], sort_keys=True)
            rows.append(dict(row, key=key, step_ms=float(row["step_ms"]), commit=str(row["commit"])))
        except (ValueError, KeyError, TypeError) as error:
            raise HistoryError(f"{path}:{number}: not a line of a history ({error!r}): correct or delete it") from error
    return rows


def compare(arguments):
    if arguments.turns < stats.LEAST_ROUNDS:
        raise HistoryError(f"--turns must be at least {stats.LEAST_ROUNDS} for an interval, got {arguments.turns}")
    if arguments.file.exists():
        read(arguments.file)  # a broken file is found before the work
    commits = {"old": commit_of(arguments.old), "new": commit_of(arguments.new)}
    programs = {arm: build(commit) for arm, commit in commits.items()}
    programs["null"] = programs["old"]
    runs = {arm: [] for arm in programs}
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(arguments.turns):
            for arm in ORDERS[turn % len(ORDERS)]:
                runs[arm].append(run(programs[arm], arguments, folder))
            now = {arm: runs[arm][-1][arguments.clock] for arm in runs}
            print(f"turn {turn + 1}: old {now['old']:.1f} ms, new {now['new']:.1f} ms ({now['new'] / now['old']:.3f}), "
                  f"old again {now['null']:.1f} ms ({now['null'] / now['old']:.3f})", flush=True)
    ratios = {arm: [a[arguments.clock] / b[arguments.clock] for a, b in zip(runs[arm], runs["old"])]
              for arm in ("new", "null")}
    append(arguments.file, [row_of(commits["old"], runs["old"] + runs["null"], arguments),
                            row_of(commits["new"], runs["new"], arguments)])
    for arm, title in (("new", "new / old"), ("null", "old / old")):
        ratio = stats.median_interval(ratios[arm])
        print(f"{title}: {ratio.value:.3f}, interval {ratio.low:.3f} to {ratio.high:.3f}")
    result = verdict(ratios["new"], ratios["null"])
    print(result + (": take more --turns, --clock cpu, or an idle machine" if result == "undecided" else ""))
    return EXIT_CODES[result]


def row_of(commit, runs, arguments):
    now = datetime.datetime.now(datetime.timezone.utc)
    return {"time": now.isoformat(timespec="seconds"), "commit": commit,
            "subject": output_of(["git", "-C", ROOT, "log", "-1", "--format=%s", commit]), "machine": machine(),
            "preset": arguments.preset, "steps": arguments.steps, "set": arguments.set,
            "step_ms": statistics.median(r["step"] for r in runs), "cpu_ms": statistics.median(r["cpu"] for r in runs),
            "runs": runs}


def show(arguments):
    if not arguments.file.exists():
        raise HistoryError(f"{arguments.file} does not exist: bench/history.py compare OLD NEW writes it")
    rows = read(arguments.file)
    for key in dict.fromkeys(row["key"] for row in rows):
        where, preset, steps, settings = json.loads(key)
        print(f"{where['cpu']}, {where['cores']} cores, {where['compiler']}: {preset}, {steps} steps {' '.join(settings)}")
        for row in (row for row in rows if row["key"] == key):
            print(f"  {row['time']}  {row['commit'][:12]}  {row['step_ms']:10.2f} ms  {row['subject']}")
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--file", type=pathlib.Path, default=FOLDER / "history.jsonl")
    commands = parser.add_subparsers(required=True)
    comparison = commands.add_parser("compare", help="measures two commits in alternation")
    comparison.add_argument("old")
    comparison.add_argument("new")
    comparison.add_argument("--turns", type=int, default=9)
    comparison.add_argument("--clock", choices=("step", "cpu"), default="step")
    comparison.add_argument("--preset", default="shakespeare-char-cpu")
    comparison.add_argument("--steps", type=int, default=100)
    comparison.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    comparison.set_defaults(call=compare)
    commands.add_parser("show", help="prints the history").set_defaults(call=show)
    arguments = parser.parse_args()
    try:
        return arguments.call(arguments)
    except (HistoryError, OSError, UnicodeError) as error:
        print(f"history: {error}", file=sys.stderr)
        return ERROR


if __name__ == "__main__":
    sys.exit(main())
