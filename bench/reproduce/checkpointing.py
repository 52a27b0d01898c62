#!/usr/bin/env python3
"""Times whole steps under every policy of activation checkpointing, and writes time and bytes to results/checkpointing.json.

`ingot bench checkpointing` lets every policy have its turn in each round. A change of time is against keeping everything,
with its 95 % interval over the rounds, widened by what the null arm (keeping everything, once more) seems to change. The
bytes are those of the activation arena, and follow from the shapes. The model has the proportions of the published 1B
run: four query heads per kv head, an MLP of four times the width.
"""

import json
import subprocess
import sys

import results

MODEL = {"layers": 16, "heads": 8, "kv_heads": 2, "width": 256, "ffn": 1024, "vocab": 8192, "context": 512}


def main():
    options = results.measured_options(__doc__, rounds=31)
    command = [options.ingot, "bench", "checkpointing", "tiny-llama", "--json", "--steps", str(options.rounds),
               "--set", "precision.compute=bf16", "--set", "train.batch_size=2"]
    tiny = {"layers": 4, "width": 64, "ffn": 128, "vocab": 512, "context": 32} if options.tiny else {}
    for key, value in {**MODEL, **tiny}.items():
        command += ["--set", f"model.{key}={value}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    rows = {row["policy"]: row for row in json.loads(done.stdout)["rows"]}
    null = abs(rows["none again"]["time_change"])
    result = results.provenance((*results.KERNELS, "ingot/profile"))
    result["arms"] = {
        policy: {"time": {"interval": [row["time_change"], row["time_change_low"] - null, row["time_change_high"] + null]},
                 "bytes": {"exact": row["bytes_change"]}} for policy, row in rows.items()}
    results.save("checkpointing", result, options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
