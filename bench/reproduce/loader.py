#!/usr/bin/env python3
"""Measures how long training waits for data with 0, 1, 2, 4 and 8 loader workers, on shards and on text that is tokenized
as it is read, on a fast and on a slow disk, and writes results/loader.json.

The numbers of workers take turns; the null arm is 0 workers once more. A step takes --step-ms, as long as a device would
compute, and a request to the slow disk --latency-ms, of a rate of --mb-per-s. Exits with 1 if a number of workers changes
the tokens. Needs build/release/bench/loader_waits.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import results

PREFETCH = 4
# Arm -> its workers.
WORKERS = {"0": 0, "0 again": 0, "1": 1, "2": 2, "4": 4, "8": 8}
ARMS = [f"{kind}, {disk} disk, {name}" for kind in ("shards", "text") for disk in ("fast", "slow") for name in WORKERS]


def main():
    options = results.measured_options(__doc__, rounds=7, step_ms=30, latency_ms=4, mb_per_s=100)
    program = results.ROOT / "build/release/bench/loader_waits"
    if not program.exists():
        sys.exit(f"{program} is missing: tools/build.sh release loader_waits")
    step_ms, slow_ms = (1, 0.1) if options.tiny else (options.step_ms, options.latency_ms)
    result = results.provenance(("ingot/data",))
    result["settings"] = {"step_ms": step_ms, "latency_ms": slow_ms, "mb_per_s": options.mb_per_s}
    result["arms"], tokens = {}, {}
    with tempfile.TemporaryDirectory() as folder:
        text, tokenizer = Path(folder) / "text.txt", Path(folder) / "tokenizer.json"
        text.write_text("".join(p.read_text(encoding="utf-8") for p in sorted((results.ROOT / "docs").glob("**/*.md"))) * (1 if options.tiny else 4),
                        encoding="utf-8")
        subprocess.run([options.ingot, "tokenizer", "train", "--quiet", "--data", text, "--out", tokenizer], check=True)
        for turn in range(options.rounds):
            for kind in ("shards", "text"):
                for disk, latency_ms in (("fast", 0), ("slow", slow_ms)):
                    for name, workers in WORKERS.items():
                        words = [program, kind, text, tokenizer, workers, PREFETCH, step_ms, latency_ms, options.mb_per_s]
                        found = json.loads(subprocess.run([str(word) for word in words], capture_output=True, text=True, check=True).stdout)
                        arm = result["arms"].setdefault(f"{kind}, {disk} disk, {name}", {"ms": {}})
                        arm["ms"][str(turn)] = found["wait_ms"]
                        if tokens.setdefault(kind, found["tokens"]) != found["tokens"]:
                            sys.exit(f"{kind}, {disk} disk: {workers} workers made other tokens")
            print(f"round {turn + 1} of {options.rounds}", flush=True)
    results.save("loader", result, options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
