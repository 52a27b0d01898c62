#!/usr/bin/env python3
"""Measures how long training waits for data with 0, 1, 2, 4 and 8 loader workers, on shards and on text that is tokenized
as it is read, on a fast and on a slow disk, by turns in one run of this script. A step takes as long as a device would
compute. Prints medians, their ranges and ratios, and the verdict on "8 workers, each 4 batches ahead, halve the waiting"; exits
with 1 if a number of workers changes the tokens. Needs build/release/bench/loader_waits and build/release/ingot.
Usage: bench/loader_waits.py [--turns 5] [--step-ms 30] [--latency-ms 4] [--mb-per-s 100]"""
import argparse
import datetime
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAM, INGOT = ROOT / "build/release/bench/loader_waits", ROOT / "build/release/ingot"
WORKERS, PREFETCH = (0, 1, 2, 4, 8), 4


def processor():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def verdict(waits):
    """Returns the verdict on a row: waits is {workers: [ms per turn]}."""
    none, one, eight = (statistics.median(waits[n]) for n in (0, 1, 8))
    halved = [name for name, before in (("none", none), ("one", one)) if eight <= before / 2]
    if one < 0.01 * none:
        return f"one worker leaves nothing to wait for; 8 instead of none: {eight / none - 1:+.0%}"
    return (f"8 instead of none: {eight / none - 1:+.0%}, instead of one: {eight / one - 1:+.0%}: "
            + ("halved against both" if len(halved) == 2 else f"halved against {halved[0]} only" if halved else "not halved"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--step-ms", type=float, default=30)
    parser.add_argument("--latency-ms", type=float, default=4)
    parser.add_argument("--mb-per-s", type=float, default=100)
    a = parser.parse_args()
    cases = [(kind, disk) for kind in ("shards", "text") for disk in ("fast", "slow")]
    waits = {case: {n: [] for n in WORKERS} for case in cases}
    tokens = {}
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        text, tokenizer = folder / "text.txt", folder / "tokenizer.json"
        text.write_text("".join(p.read_text(encoding="utf-8") for p in sorted(ROOT.glob("docs/**/*.md"))) * 4, encoding="utf-8")
        subprocess.run([INGOT, "tokenizer", "train", "--quiet", "--data", text, "--out", tokenizer], check=True)
        for turn in range(a.turns):
            for kind, disk in cases:
                for n in WORKERS:
                    line = [PROGRAM, kind, text, tokenizer, n, PREFETCH, a.step_ms, a.latency_ms if disk == "slow" else 0, a.mb_per_s]
                    done = subprocess.run([str(word) for word in line], capture_output=True, text=True, check=True)
                    result = json.loads(done.stdout)
                    waits[kind, disk][n].append(result["wait_ms"])
                    if tokens.setdefault(kind, result["tokens"]) != result["tokens"]:
                        sys.exit(f"{kind}, {disk} disk: {n} workers made other tokens")
            print(f"turn {turn + 1} of {a.turns}", file=sys.stderr, flush=True)
    print(f"Waiting per step of {a.step_ms:g} ms, in ms: medians of {a.turns} turns (least to most).\n")
    print("| data | disk | " + " | ".join(f"{n} workers" if n != 1 else "1 worker" for n in WORKERS) + " |")
    print("|---|---" + "|---" * len(WORKERS) + "|")
    for kind, disk in cases:
        row = waits[kind, disk]
        print(f"| {kind} | {disk} | " + " | ".join(f"{statistics.median(row[n]):.2f} ({min(row[n]):.2f} to {max(row[n]):.2f})"
                                                   for n in WORKERS) + " |")
    print()
    for kind, disk in cases:
        print(f"- {kind}, {disk} disk: {verdict(waits[kind, disk])}")
    print(f"\n`bench/loader_waits.py {' '.join(sys.argv[1:])}`".replace(" `", "`")
          + f", {datetime.date.today()}, {os.cpu_count()} cores of {processor()}, load {os.getloadavg()[0]:.1f}.")


if __name__ == "__main__":
    main()
