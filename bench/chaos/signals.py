#!/usr/bin/env python3
"""Sends SIGTERM, SIGINT or SIGHUP to `ingot launch` at a random moment of a start.

  bench/chaos/signals.py [--count N] [--seed N] [--pty] [--short]

The moments lie between 1 ms and 1.5 s after a first start (of one process, of two ranks, or of two ranks whose launcher sleeps for
3 s) or within 0.3 s after a killed rank is noticed. The exit code must be 75: the run saved, or there was nothing to save; no
process may be left, and the same command must then go on. A signal that comes before the first instruction of the program ends it
by the system's rule; such rounds are made again, and counted.
"""
import os
import pathlib
import signal
import sys
import time

import chaos

KINDS = ["one", "ranks", "slow", "restart"]
MOST_EARLY_S = 0.05  # a signal that ends a program later than this was lost by the program
KEYS = {"train.steps": 1000000, "checkpoint.every": 50}


def launch_words(test, kind, out, launcher):
    words = ["launch", "-n", "1" if kind == "one" else "2"]
    if kind == "slow":
        words += ["--mpirun", str(launcher)]
    keys = KEYS | ({} if kind == "one" else {"parallel.dp": 2})
    return words + ["--", *test.train(out, keys)]


def disturb(test, kind, out, command):
    """Sends the signal; returns the moment in seconds after the start that it disturbs."""
    if kind == "restart":
        if not chaos.wait_until(lambda: chaos.checkpoints(out) and chaos.last_step(out) > 60):
            return None
        ranks = [pid for pid in chaos.processes(out) if pid != command.pid]
        if not ranks:
            return None
        chaos.send(test.random.choice(ranks), signal.SIGKILL)
        chaos.wait_until(lambda: "starting again" in command.output, 20, 0.001)
        moment_s = test.random.random() * 0.3
    else:
        moment_s = 0.001 + test.random.random() * (4 if kind == "slow" else 1.5)
    time.sleep(moment_s)
    command.signal(test.random.choice([signal.SIGTERM, signal.SIGINT, signal.SIGHUP]))
    return moment_s


def main():
    test = chaos.Chaos(__doc__, 400, 8, "signals")
    launcher = test.folder / "sleepy-mpirun"
    launcher.write_text("#!/bin/sh\nsleep 3\nexec mpirun \"$@\"\n")
    launcher.chmod(0o755)
    counts, early, saved = {}, 0, 0
    while test.done < test.count:
        kind = KINDS[test.done % len(KINDS)]
        out = test.folder / f"run-{test.done}"
        command = test.command(launch_words(test, kind, out, launcher))
        moment_s = disturb(test, kind, out, command)
        outcome = command.wait(60)
        if moment_s is not None and kind != "restart" and moment_s < MOST_EARLY_S and outcome.code > 128 and not outcome.output:
            early += 1
            continue
        test.done += 1
        counts[kind] = counts.get(kind, 0) + 1
        where = f"signal {test.done} ({kind}, {moment_s} s)"
        has_saved = "nothing to save" not in outcome.output
        if outcome.code != 75:
            test.fail(f"{where}: exit code {outcome.code}", outcome.output)
        elif has_saved and not chaos.checkpoints(out):
            test.fail(f"{where}: there is no checkpoint", outcome.output)
        left = [pid for pid in chaos.processes(test.folder, "") if pid != os.getpid()]
        if left:
            test.fail(f"{where}: {len(left)} processes are left")
            chaos.end_processes(test.folder)
        saved += has_saved
        if not test.failures and pathlib.Path(out).exists():
            if test.done % 20 == 0:  # the same command goes on
                words = launch_words(test, kind, out, launcher) + ["--set", f"train.stop_at={chaos.last_step(out) + 5}"]
                if test.run(words).code:
                    test.fail(f"{where}: the same command does not go on")
            chaos.shutil.rmtree(out, ignore_errors=True)
    figures = ", ".join(f"{count} {kind}" for kind, count in counts.items())
    return test.finish(f"{figures}; {saved} saved, the others had nothing to save; {early} before the program's first instruction")


if __name__ == "__main__":
    sys.exit(main())
