#!/usr/bin/env python3
"""Runs millions of tiny steps and measures whether a step costs more the longer the run has been.

  bench/chaos/haul.py [--count STEPS] [--short]

The run evaluates every 200 steps and saves every 20,000 (or 50 times). Its processor time per step (which other programs change little),
the bytes that it reads or maps per step and its anonymous memory are read every twentieth of the run. The last fifth may take 5 % more time
and read 500 bytes more per step than the second fifth (medians), and take 2 MB more memory (the least readings, because the copy for a
checkpoint comes and goes). With --short, where a fifth lasts two seconds, it may take 50 % more time, and its memory is compared with that after
the middle of the run, because memory still grows during its first 60,000 steps. Then the run is resumed for 1,000 more steps: the time
until the first of them is printed.
"""
import os
import pathlib
import re
import statistics
import sys
import time

import chaos

PARTS = 20
MOST_MORE_READ, MOST_MORE_BYTES = 500, 2 << 20
KEYS = {"model.width": 16, "model.heads": 1, "model.kv_heads": 1, "model.ffn": 16, "model.context": 8, "train.batch_size": 1,
        "eval.every": 200, "eval.max_tokens": 64, "checkpoint.best": "false", "train.stats_every": 2000}


def processor_s(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def read_bytes(pid):
    """What the process has read, and what it has mapped and touched."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    read = re.search(r"rchar: (\d+)", pathlib.Path(f"/proc/{pid}/io").read_text()).group(1)
    return int(read) + (int(fields[7]) + int(fields[9])) * os.sysconf("SC_PAGE_SIZE")


def anonymous_bytes(pid):
    return int(re.search(r"Anonymous:\s+(\d+) kB", pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text()).group(1)) << 10


def main():
    test = chaos.Chaos(__doc__, 3_000_000, 100_000, "steps")
    out = test.folder / "run"
    command = test.command(test.train(out, KEYS | {"train.steps": test.count, "checkpoint.every": min(20000, test.count // 50)}) + ["--quiet"])
    readings = []
    for part in range(1, PARTS):
        while command.is_running() and chaos.last_step(out) < test.count * part // PARTS:
            time.sleep(0.02)
        if not command.is_running():
            break
        readings.append((chaos.last_step(out), processor_s(command.pid), anonymous_bytes(command.pid), read_bytes(command.pid)))
    outcome = command.wait(3600)
    test.done = chaos.last_step(out)
    if outcome.code or test.done != test.count or len(readings) < PARTS - 1:
        test.fail(f"the run ended with {outcome.code} after step {test.done}", outcome.output)
        return test.finish("")
    fifth = PARTS // 5
    pairs = list(zip(readings, readings[1:]))
    costs, reads = ([(b[i] - a[i]) / (b[0] - a[0]) for a, b in pairs] for i in (1, 3))
    early, late = statistics.median(costs[fifth:2 * fifth]), statistics.median(costs[-fifth:])
    early_read, late_read = statistics.median(reads[fifth:2 * fifth]), statistics.median(reads[-fifth:])
    begin = PARTS // 2 if test.options.short else fifth
    least = [min(reading[2] for reading in some) for some in (readings[begin:begin + fifth], readings[-fifth:])]
    growth = least[1] - least[0]
    if late > (1.5 if test.options.short else 1.05) * early:
        test.fail(f"a step takes {late / early:.3f} times the processor time of an early one")
    if late_read > early_read + MOST_MORE_READ:
        test.fail(f"a step reads {late_read:.1f} bytes, and an early one {early_read:.1f}")
    if growth > MOST_MORE_BYTES:
        test.fail(f"the memory grew by {growth / 1e6:.1f} MB")
    start = time.monotonic()
    resumed = test.command(["train", "--resume", "--out", str(out), "--set", f"train.steps={test.count + 1000}", "--quiet"])
    chaos.wait_until(lambda: chaos.last_step(out) > test.count or not resumed.is_running())
    resume_s = time.monotonic() - start
    if resumed.wait().code:
        test.fail("the run cannot be resumed", resumed.output)
    return test.finish(f"{early * 1e6:.1f} us of processor time per step early, {late * 1e6:.1f} late ({late / early:.3f}); "
                       f"{early_read:.1f} and {late_read:.1f} bytes read or mapped per step; memory {growth / 1e6:+.2f} MB; metrics.jsonl {(out / 'metrics.jsonl').stat().st_size / 1e6:.0f} MB, "
                       f"first step after a resume in {resume_s:.2f} s")


if __name__ == "__main__":
    sys.exit(main())
