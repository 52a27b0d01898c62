#!/usr/bin/env python3
"""Measures messages between ranks and writes results/messages.json: one message per tensor against one for all, and
gradients in f32, bf16 and f16, on four ranks whose messages take at least --delay milliseconds.

build/release/bench/messages measures the arms in alternation. An arm has its messages and bytes, its times by round, and the
planned time of the same messages on 8 and 16 H100 (ingot/plan/network.h), which no GPU has confirmed.
"""

import json
import os
import subprocess
import sys

import results
import runs


# The arms that bench/messages.cpp prints.
ARMS = [f"{what}, {how}" for what in ("weights", "updates") for how in ("a list", "a list again", "one buffer")] + [
    f"gradients, {dtype}" for dtype in ("f32", "f32 again", "bf16", "f16")]


def main():
    options = results.measured_options(__doc__, rounds=31, ranks=4, delay=1)
    program = results.ROOT / "build/release/bench/messages"
    if not program.exists():
        sys.exit(f"{program} is missing: tools/build.sh release messages (it needs MPI)")
    command = [*runs.MPIRUN, "-n", str(options.ranks), str(program), str(options.delay), str(options.rounds)]
    done = subprocess.run(command + (["--tiny"] if options.tiny else []), env={**os.environ, **runs.MPI_ENVIRONMENT},
                          capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    result = results.provenance(("ingot/comm", "ingot/parallel", "ingot/plan", "configs/hardware"))
    result["settings"] = {"ranks": options.ranks, "delay_ms": options.delay}
    found = json.loads(done.stdout)
    if set(found) != set(ARMS):
        sys.exit(f"{program} printed the arms {', '.join(found)}; it must be built again")
    result["arms"] = {arm: {figure: {str(i): ms for i, ms in enumerate(value)} if figure == "ms" else {"exact": value}
                            for figure, value in figures.items()} for arm, figures in found.items()}
    results.save("messages", result, options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
