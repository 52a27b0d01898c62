#!/usr/bin/env python3
"""The tiny twin of every published recipe (configs/*-tiny.toml), trained to its end: 4 layers, 256 wide, two million tokens.

The first seed only, minutes a recipe. --full means nothing here.
"""

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import runs

args = runs.arguments(__doc__)
RECIPES = sorted(path.stem for path in (runs.ROOT / "configs").glob("*-tiny.toml"))

rows, learned = [], []
for name in RECIPES:
    print(name, flush=True)
    folder = Path(tempfile.mkdtemp(prefix="reproduce-"))
    command = [args.ingot, "train", name, "--data", args.data, "--out", str(folder / "run"), "--set",
               f"train.seed={args.seeds[0]}", "--set", "sample.count=0", "--set", "guard.spike=report"]
    if args.steps:
        command += ["--set", f"train.steps={args.steps}", "--set", "train.max_tokens=0"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    result = runs.Result(folder / "run")
    log = (folder / "run" / "train.log").read_text()
    shutil.rmtree(folder)
    print(f"  validation loss {result.val_loss:.4f} in {result.summary['wall_s']:.0f} s", flush=True)
    evaluations = result.series("val_loss")
    learned.append(evaluations == sorted(evaluations, reverse=True))
    rows.append([name, result.summary["steps"], f"{result.summary['tokens'] / 1e6:.2f} M", f"{max(result.series('lr')):.2g}",
                 " / ".join(f"{loss:.3f}" for loss in evaluations), f"{result.summary['val_bits_per_byte']:.3f}",
                 len(re.findall("robust deviations above", log))])
runs.write_section(
    args, "Tiny twins of the published recipes", "the published recipes train stably.",
    runs.table(["recipe", "steps", "tokens", "peak rate", "validation loss on the way", "bits per byte", "spikes"], rows),
    "holds" if all(learned) else "holds in part",
    f"{sum(learned)} of {len(learned)} end without an evaluation above the one before. Schedules, optimizers by role, decay and "
    "proportions are the recipes'; AdamW's peak rates grow as the width shrinks, so the losses say nothing of which recipe is better.")
