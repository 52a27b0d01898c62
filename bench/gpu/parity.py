#!/usr/bin/env python3
"""Trains small models on the CPU and on the GPU, from the same seed on the same text, and compares the loss of every
step (tolerance: 1e-4 of the loss in f32, 2e-2 in bf16). On the GPU it also compares FP8 (linears and head) with bf16 by
the mean loss of the last tenth of the steps (tolerance 1e-2). It needs only the `ingot` program.

  python3 bench/gpu/parity.py INGOT [--models NAME...] [--steps 200] [--devices cpu cuda] [--out FOLDER] [--json OUT.json] [--set KEY=VALUE]..."""
import argparse
import json
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile

MODELS = ("tiny-llama", "tiny-gpt2")
LIMITS = {"f32": 1e-4, "bf16": 2e-2}
FP8_LIMIT = 1e-2
SETTINGS = []  # from --set, for all runs
FP8 = {"precision.fp8": "tensorwise", "head.precision": "fp8", "model.vocab_multiple": 16}


def write_text(path):
    words = random.Random(7)
    vocabulary = "the cat dog sat ran on under a mat tree while it rained and nobody saw them go".split()
    path.write_text("\n".join(" ".join(words.choices(vocabulary, k=12)) + "." for _ in range(6000)))


def losses(program, model, compute, device, steps, text, out, more=None):
    command = [program, "train", model, "--data", str(text), "--out", str(out)]
    command += [word for setting in SETTINGS for word in ("--set", setting)]
    for key, value in {"train.steps": steps, "train.device": device, "precision.compute": compute, "optimizer.lr": 1e-3,
                       "eval.every": 0, "sample.count": 0, **(more or {})}.items():
        command += ["--set", f"{key}={value}"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [row["loss"] for row in rows if "loss" in row]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--models", nargs="+", default=MODELS)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--devices", nargs=2, default=["cpu", "cuda"])
    parser.add_argument("--out")
    parser.add_argument("--json")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a key of all runs")
    options = parser.parse_args()
    SETTINGS.extend(options.set)
    folder = pathlib.Path(options.out or tempfile.mkdtemp(prefix="ingot-parity-"))
    folder.mkdir(parents=True, exist_ok=True)
    text = folder / "text.txt"
    write_text(text)
    rows, failed = [], False
    for model in options.models:
        for compute, limit in LIMITS.items():
            one, other = (losses(options.program, model, compute, device, options.steps, text,
                                 folder / f"{model}-{compute}-{i}-{device}") for i, device in enumerate(options.devices))
            if len(one) != len(other) or len(one) != options.steps:
                raise SystemExit(f"{model} in {compute}: {len(one)} and {len(other)} losses, {options.steps} steps")
            apart = max(abs(a - b) / a for a, b in zip(one, other))
            failed |= not apart <= limit
            rows.append({"model": model, "compute": compute, "steps": options.steps, "apart": apart, "limit": limit,
                         "last": [one[-1], other[-1]]})
            print(f"parity {model:<12} {compute:<5} {options.steps} steps: losses within {apart:.1e} of each other "
                  f"(limit {limit:.0e}), last {one[-1]:.4f} and {other[-1]:.4f}"
                  f"{'' if apart <= limit else '  TOO FAR'}", flush=True)
        device, last = options.devices[1], max(1, options.steps // 10)
        fp8 = losses(options.program, model, "bf16", device, options.steps, text, folder / f"{model}-fp8-{device}", FP8)
        want, got = (statistics.fmean(course[-last:]) for course in (other, fp8))
        apart = abs(got - want) / want
        failed |= not apart <= FP8_LIMIT
        rows.append({"model": model, "compute": "fp8", "steps": options.steps, "apart": apart, "limit": FP8_LIMIT,
                     "last": [want, got]})
        print(f"parity {model:<12} fp8   {options.steps} steps on {device}: mean of the last {last} losses within {apart:.1e} "
              f"of bf16's (limit {FP8_LIMIT:.0e}), {want:.4f} and {got:.4f}{'' if apart <= FP8_LIMIT else '  TOO FAR'}", flush=True)
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(rows, indent=1) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
