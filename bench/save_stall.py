#!/usr/bin/env python3
"""Measures how long steps wait for checkpoints, written during training (checkpoint.async) and waited for, in alternation in
one run of this script: the preset gpt2-124m on bytes, a checkpoint every ten steps. Prints one line per checkpoint and
the ratio of the medians; exits with 1 if steps wait more than 5 % of the time of a save that is waited for.
Usage: bench/save_stall.py [--turns 2] [--preset gpt2-124m]"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAM = ROOT / "build/release/ingot"
EVERY, STEPS = 10, 21  # a checkpoint takes up to 30 s beside training, and the next one would wait for it
SETTINGS = {"train.steps": STEPS, "checkpoint.every": EVERY, "train.batch_size": 4, "train.grad_accum": 1, "model.context": 512,
            "eval.every": 0, "eval.max_tokens": 512, "sample.count": 0, "data.tokenizer": "byte"}


def train(preset, is_async, text, folder):
    """Returns the milliseconds that each checkpoint during the run made steps wait, and the median step."""
    out = folder / "run"
    subprocess.run(["rm", "-rf", str(out)], check=True)
    settings = dict(SETTINGS, **{"checkpoint.async": str(is_async).lower()})
    line = [str(PROGRAM), "train", preset, "--data", str(text), "--out", str(out)]
    line += [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    subprocess.run(line, capture_output=True, check=True, env=dict(os.environ, XDG_CACHE_HOME=str(folder / "cache")))
    rows = [json.loads(row) for row in (out / "metrics.jsonl").read_text().splitlines()]
    rows = {row["step"]: row for row in rows if "step_ms" in row}
    # A checkpoint's time is spread over the steps up to the next one.
    waits = [sum(rows[step].get("save_ms", 0) for step in range(first, min(first + EVERY, STEPS + 1)))
             for first in range(EVERY + 1, STEPS + 1, EVERY)]
    return waits, statistics.median(row["step_ms"] for row in rows.values())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--preset", default="gpt2-124m")
    arguments = parser.parse_args()
    waits = {True: [], False: []}
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        text = folder / "text.txt"
        text.write_text("".join(p.read_text(encoding="utf-8") for p in sorted(ROOT.glob("docs/*.md"))), encoding="utf-8")
        for turn in range(arguments.turns):
            for is_async in (True, False):
                found, step_ms = train(arguments.preset, is_async, text, folder)
                waits[is_async] += found
                print(f"turn {turn + 1}, {'beside training' if is_async else 'waited for'}: steps waited "
                      f"{', '.join(f'{ms:.1f}' for ms in found)} ms; median step {step_ms:.0f} ms", flush=True)
    beside, waited = statistics.median(waits[True]), statistics.median(waits[False])
    print(f"medians: {beside:.1f} ms beside training, {waited:.0f} ms waited for: {beside / waited:.4f}")
    sys.exit(0 if beside <= 0.05 * waited else 1)


if __name__ == "__main__":
    main()
