#!/usr/bin/env python3
"""Writes what `ingot plan` says about the models of claims.toml to results/plans.json: bytes of one rank, and virtual time.

A plan runs the trainer on addresses without memory, so the bytes are exact and no device is needed. The time of a step
is that of a description of H100, which no GPU has confirmed; claims.py judges layouts by it, and no speeds.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

import results

ONE = {"train.batch_size": 1, "train.grad_accum": 1}
TWO = {"train.batch_size": 1, "train.grad_accum": 2}
FOUR = {"parallel.dp": 4, "train.grad_accum": 4}
SUMMARY = {"activations.policy": "block", "parallel.tp": 8, "parallel.fsdp": 4, "train.batch_size": 1, "train.grad_accum": 8,
           "precision.compute": "bf16", "train.batch_ramp": '["4 until 1G"]'}
# Arm -> (preset, ranks, settings).
ARMS = {
    "hybrid-124m, bf16 head": ("hybrid-124m", 1, {"head.precision": "bf16"}),
    "hybrid-124m, FP8 head": ("hybrid-124m", 1, {"head.precision": "fp8"}),
    "llama-1b, activations in f32": ("llama-1b", 1, {"precision.compute": "f32", "activations.policy": "none"}),
    "llama-1b, activations in bf16": ("llama-1b", 1, {"precision.compute": "bf16", "activations.policy": "none"}),
    "llama2-70b, one sequence": ("llama2-70b", 1, {**ONE, "activations.policy": "none"}),
    "llama2-70b, four sequences": ("llama2-70b", 1, {**ONE, "train.batch_size": 4, "activations.policy": "none"}),
    "llama2-7b, tp 8 x dp 2": ("llama2-7b", 16, {**TWO, "parallel.tp": 8, "parallel.dp": 2}),
    "llama2-7b, tp 16": ("llama2-7b", 16, {**TWO, "parallel.tp": 16}),
    "llama-1b on 4, f32 gradients": ("llama-1b-h100", 4, FOUR),
    "llama-1b on 4, f16 gradients": ("llama-1b-h100", 4, {**FOUR, "parallel.payload": "f16", "parallel.payload_ends": "f16"}),
    "summary recipe, llama2-7b": ("llama2-7b", 32, SUMMARY),
}


def planned(ingot, preset, ranks, settings):
    command = [ingot, "plan", preset, "--hardware", "h100-sxm", "--ranks", str(ranks), "--json"]
    for key, value in settings.items():
        command += ["--set", f"{key}={value}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if not done.stdout:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    found = json.loads(done.stdout)
    rank = max(found["ranks"], key=lambda one: one["peak_bytes"])
    return {"peak_bytes": {"exact": rank["peak_bytes"]}, "activations": {"exact": rank["arenas"]["activations"]},
            "step_s": {"exact": found["step_s"]}, "exposed_s": {"exact": found["exposed_comm_s"]}, "fits": {"exact": int(found["fits"])}}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=results.FOLDER)
    parser.add_argument("--ingot", default=str(results.ROOT / "build/release/ingot"))
    options = parser.parse_args()
    result = results.provenance((*results.KERNELS, "ingot/plan", "ingot/parallel", "configs"))
    result["arms"] = {arm: planned(options.ingot, *plan) for arm, plan in ARMS.items()}
    results.save("plans", result, options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
