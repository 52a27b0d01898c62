#!/usr/bin/env python3
"""Compares the interval of `ingot lr-range` with the best rate that a sweep finds, for several optimizers and sizes.

The sweep tries rates a factor of 2 apart, on every seed; its optimum is that of `ingot sweep`. --quick tries one
optimizer on one seed and writes no section.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import runs

IS_QUICK = "--quick" in sys.argv
if IS_QUICK:
    sys.argv.remove("--quick")
if not any(a.startswith("--seeds") for a in sys.argv):
    sys.argv += ["--seeds", "1337" if IS_QUICK else "1337,1338"]
args = runs.arguments(__doc__)
if IS_QUICK:
    args.steps = args.steps or 40
assert args.seeds == list(range(args.seeds[0], args.seeds[0] + len(args.seeds))), "a sweep counts its seeds upwards"
BASE = {
    "model.layers": 2, "model.context": 64, "model.norm": "rmsnorm", "model.positions": "rope", "model.mlp": "swiglu",
    "model.tied": False, "data.tokenizer": "char", "train.batch_size": 8, "train.steps": args.steps or 150,
    "train.stats_every": 0, "train.seed": args.seeds[0], "schedule.warmup_steps": 15, "eval.every": 0,
    "eval.max_tokens": 16384, "sample.count": 0,
}
MUON = [{"roles": ["matrix"], "kind": "muon", "lr_scale": 8.0, "weight_decay": 0.0}]
# Name, width, other settings, and the powers of 2 between which the rates of the sweep lie.
CASES = [
    ("AdamW", 64, {"optimizer.kind": "adamw"}, -12, -3),
    ("AdamW", 256, {"optimizer.kind": "adamw"}, -13, -4),
    ("AdamW, BPE of 4,096", 64, {"optimizer.kind": "adamw", "data.tokenizer": "bpe"}, -12, -3),
    ("Lion", 64, {"optimizer.kind": "lion"}, -14, -5),
    ("Muon for matrices", 64, {"optimizer.kind": "adamw", "optimizer.group": MUON}, -12, -3),
    ("momentum", 64, {"optimizer.kind": "momentum"}, -10, -1),
    ("SGD", 64, {"optimizer.kind": "sgd"}, -7, 2),
    ("AdamW, BPE of 512", 64, {"optimizer.kind": "adamw", "data.tokenizer": "bpe", "data.tokenizer_vocab": 512,
                               "train.steps": 100, "schedule.warmup_steps": 10}, -12, -3),
]
# The rule of lr-range was chosen by looking at the cases above, and not at those below.
FRESH = [
    ("Adan", 64, {"optimizer.kind": "adan"}, -12, -3),
    ("AdamW, 4 layers, GPT-2's", 128, {"model.layers": 4, "model.norm": "layernorm", "model.positions": "learned",
                                       "model.mlp": "gelu_tanh", "model.tied": True}, -12, -3),
    ("AdamW, batch of 32", 64, {"train.batch_size": 32}, -12, -3),
]


def ingot(command, config, *options):
    line = [args.ingot, command, str(config), "--data", args.data, "--json", *options]
    done = subprocess.run(line, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(line)} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout)


rows, are_inside, are_in_first, fixed = [], [], [], None
for name, width, settings, low, high in CASES[:1] if IS_QUICK else CASES + FRESH:
    with tempfile.TemporaryDirectory(prefix="lr-range-") as folder:
        config = Path(folder) / "run.toml"
        config.write_text(runs.to_toml({**BASE, "model.width": width, "model.heads": width // 16, **settings}))
        found = ingot("lr-range", config, "--from", "1e-6", "--to", "10", "--out", f"{folder}/range")
        swept = ingot("sweep", config, "--vary", f"optimizer.lr={2.0**low}..{2.0**high}:log:{high - low + 1}",
                      "--seeds", str(len(args.seeds)), "--out", f"{folder}/sweep")
    optimum, (first, last) = swept["optima"][0], found["interval"]
    are_inside.append(first <= optimum["value"] <= last and not optimum["is_at_border"])
    fixed = fixed or (first, last)
    are_in_first.append(fixed[0] <= optimum["value"] <= fixed[1])
    interval = optimum["interval"]
    by_seeds = f", {interval[0]:.2g} to {interval[1]:.2g}" if interval else ""
    rows.append([name, str(width), f"{first:.2g} to {last:.2g}", f"{found['rises_at']:.2g}",
                 f"{optimum['value']:.2g}{by_seeds}", "yes" if are_inside[-1] else "no",
                 "yes" if are_in_first[-1] else "no"])
    print(" | ".join(rows[-1]), flush=True)
runs.write_section(
    args, "The learning-rate range test",
    "the best rate of a run lies in the interval that one short run with a growing rate finds.",
    runs.table(["optimizer", "width", "interval of lr-range", "loss rises at", "best rate of the sweep",
                "inside", "inside the first row's"], rows),
    "refuted" if not any(are_inside) else "not told apart" if sum(are_inside) <= sum(are_in_first) else
    "holds" if all(are_inside) else "in part",
    f"lr-range: 100 steps from 1e-6 to 10. Sweep: {BASE['train.steps']} steps with warm-up and cosine decay, rates a "
    f"factor of 2 apart, {len(args.seeds)} seeds. The first figure of the best rate is the optimum, the others its 95 % "
    "interval. The rule of lr-range was chosen by the first eight rows; the last three are new to it. With Muon the rate "
    "is that of the other parameters, and the matrices' is 8 times that. The last column is the null arm: the interval of the "
    f"first row serves all rows, and holds the optimum of {sum(are_in_first)} of {len(rows)}; lr-range's own holds {sum(are_inside)}.")
