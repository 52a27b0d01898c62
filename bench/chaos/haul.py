#!/usr/bin/env python3
"""Runs millions of tiny steps and measures whether a step costs more the longer the run has been.

  bench/chaos/haul.py [--count STEPS] [--short]

The run evaluates every 200 steps and saves every 20,000. Its processor time per step (which other programs change little) and its
anonymous memory are read every twentieth of the run. The last fifth may take 5 % more time per step than the second fifth (medians),
and 2 MB more memory (the least readings, because the copy for a checkpoint comes and goes). Then the run is resumed for 1,000 more steps: the time until the first of them is printed.
"""
import os
import pathlib
import re
import statistics
import sys
import time

import chaos

PARTS = 20
MOST_SLOWER, MOST_MORE_BYTES = 1.05, 2 << 20
KEYS = {"model.width": 16, "model.heads": 1, "model.kv_heads": 1, "model.ffn": 16, "model.context": 8, "train.batch_size": 1,
        "eval.every": 200, "eval.max_tokens": 64, "checkpoint.every": 20000, "checkpoint.best": "false", "train.stats_every": 2000}


def processor_s(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def anonymous_bytes(pid):
    return int(re.search(r"Anonymous:\s+(\d+) kB", pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text()).group(1)) << 10


def main():
    test = chaos.Chaos(__doc__, 3_000_000, 400_000, "steps")
    out = test.folder / "run"
    command = test.command(test.train(out, KEYS | {"train.steps": test.count}) + ["--quiet"])
    readings = []
    for part in range(1, PARTS):
        while command.is_running() and chaos.last_step(out) < test.count * part // PARTS:
            time.sleep(0.02)
        if not command.is_running():
            break
        readings.append((chaos.last_step(out), processor_s(command.pid), anonymous_bytes(command.pid)))
    outcome = command.wait(3600)
    test.done = chaos.last_step(out)
    if outcome.code or test.done != test.count or len(readings) < PARTS - 1:
        test.fail(f"the run ended with {outcome.code} after step {test.done}", outcome.output)
        return test.finish("")
    costs = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in zip(readings, readings[1:])]
    fifth = PARTS // 5
    early, late = statistics.median(costs[fifth:2 * fifth]), statistics.median(costs[-fifth:])
    least = [min(reading[2] for reading in some) for some in (readings[fifth:2 * fifth], readings[-fifth:])]
    growth = least[1] - least[0]
    if late > MOST_SLOWER * early:
        test.fail(f"a step takes {late / early:.3f} times the processor time of an early one")
    if growth > MOST_MORE_BYTES:
        test.fail(f"the memory grew by {growth / 1e6:.1f} MB")
    start = time.monotonic()
    resumed = test.command(["train", "--resume", "--out", str(out), "--set", f"train.steps={test.count + 1000}", "--quiet"])
    chaos.wait_until(lambda: chaos.last_step(out) > test.count or not resumed.is_running())
    resume_s = time.monotonic() - start
    if resumed.wait().code:
        test.fail("the run cannot be resumed", resumed.output)
    return test.finish(f"{early * 1e6:.1f} us of processor time per step early, {late * 1e6:.1f} late ({late / early:.3f}); "
                       f"memory {growth / 1e6:+.2f} MB; metrics.jsonl {(out / 'metrics.jsonl').stat().st_size / 1e6:.0f} MB, "
                       f"first step after a resume in {resume_s:.2f} s")


if __name__ == "__main__":
    sys.exit(main())
