#!/usr/bin/env python3
"""Finds the best learning rate of widths 64 to 512 with and without scaling.width_rule = mup, for AdamW and for Muon.

The rates are a factor of 2 apart. A parabola over log2 of the rate, through the means over the seeds at the best rate
and its neighbours, gives the best one. --quick tries two widths on one seed for a few steps and writes no section, nor
does --part, such as --part adamw:64,256, which tries one optimizer on some widths.
"""

import math
import sys

import runs

IS_QUICK = "--quick" in sys.argv
if IS_QUICK:
    sys.argv.remove("--quick")
PART = None
if "--part" in sys.argv:
    at = sys.argv.index("--part")
    PART = sys.argv[at + 1]
    del sys.argv[at:at + 2]
if not any(a.startswith("--seeds") for a in sys.argv):
    sys.argv += ["--seeds", "1337" if IS_QUICK or PART else "1337,1"]
args = runs.arguments(__doc__)
if IS_QUICK:
    args.steps = args.steps or 20
elif PART:
    args.steps = args.steps or 150
WIDTHS = (64, 128) if IS_QUICK else (64, 128, 256, 512)
RATES = {"adamw": [2.0**k for k in (-10, -9, -8, -7, -6, -5)], "muon": [2.0**k for k in (-8, -7, -6, -5, -4)]}
if PART:
    name, widths = PART.split(":")
    WIDTHS, RATES = tuple(int(w) for w in widths.split(",")), {name: RATES[name]}
BASE = {
    "model.layers": 2, "model.context": 64, "model.norm": "rmsnorm", "model.positions": "rope", "model.mlp": "swiglu",
    "model.tied": False, "data.tokenizer": "char", "train.batch_size": 8, "train.steps": 150, "train.log_every": 10,
    "train.stats_every": 0, "schedule.warmup_steps": 15, "eval.every": 0, "eval.max_tokens": 16384, "sample.count": 0,
}


def settings(rule, width, rate, is_scaled):
    own = {"model.width": width, "model.heads": width // 16, "optimizer.kind": "adamw"}
    own["optimizer.lr"] = rate if rule == "adamw" else 2.0**-7
    if rule == "muon":
        own["optimizer.group"] = [{"roles": ["matrix"], "kind": "muon", "lr": rate, "weight_decay": 0.0}]
    if is_scaled:
        own["scaling.base"] = f"width={WIDTHS[0]} head_dim=16"
    return own


def mean_loss(rule, width, rate, is_scaled):
    losses = []
    for seed in args.seeds:
        result = runs.train(args, {**settings(rule, width, rate, is_scaled), "train.seed": seed}, BASE, may_fail=True)
        losses.append(math.inf if result.error else result.val_loss)
    loss = runs.mean(losses)
    print(f"{rule} width {width} rate {rate:.4g} {'mup' if is_scaled else 'plain'}: {loss:.4f}", flush=True)
    return loss


def best_rate(losses):
    """Returns the best rate of {rate: loss}, and whether it lies inside the range that was tried."""
    rates = sorted(losses)
    i = min(range(len(rates)), key=lambda k: losses[rates[k]])
    if i in (0, len(rates) - 1) or math.inf in (losses[rates[i - 1]], losses[rates[i + 1]]):
        return rates[i], 0 < i < len(rates) - 1
    low, middle, high = (losses[rates[k]] for k in (i - 1, i, i + 1))
    curvature = low - 2 * middle + high
    return rates[i] * 2 ** (0.5 * (low - high) / curvature if curvature > 0 else 0), True


rows, holds = [], []
for rule in RATES:
    base = {rate: mean_loss(rule, WIDTHS[0], rate, False) for rate in RATES[rule]}
    for is_scaled in (False, True):
        cells, ratios = [], []
        for width in WIDTHS:
            losses = base if width == WIDTHS[0] else {r: mean_loss(rule, width, r, is_scaled) for r in RATES[rule]}
            rate, is_inside = best_rate(losses)
            first = rate if width == WIDTHS[0] else first
            ratios.append(rate / first)
            cells.append(f"{rate:.4f}{'' if is_inside else ' (end of the range)'}, x {rate / first:.2f}")
        is_within = all(0.5 <= ratio <= 2 for ratio in ratios)
        if is_scaled:
            holds.append(is_within)
        rows.append([rule, "mup" if is_scaled else "none", *cells, "yes" if is_within else "no"])
runs.write_section(
    args, "Learning rates over width",
    "with the scaling rules, the best rate of width 64 is the best of widths up to 512 within a factor of 2.",
    runs.table(["optimizer", "scaling.width_rule", *(f"width {w}" for w in WIDTHS), "within a factor of 2"], rows),
    "holds" if all(holds) else "holds in part" if any(holds) else "refuted",
    "Best rate, and its ratio to that of the smallest width. With Muon the rate is that of the matrices; all other "
    "parameters have AdamW at 2^-7.")
