#!/usr/bin/env python3
"""Finds the best learning rate of widths 64 to 512 with and without scaling.width_rule = mup, for AdamW and for Muon.

The rates are a factor of 2 apart. A parabola over log2 of the rate, through a seed's losses at the best rate and
its neighbours, gives the best one of that seed. --quick tries two widths on one seed for a few steps and writes no section, nor
does --part, such as --part adamw:64,256, which tries one optimizer on some widths.
"""

import math
import sys

import results
import runs

sys.path.insert(0, str(results.ROOT / "bench"))
import stats  # noqa: E402

IS_QUICK = "--quick" in sys.argv
if IS_QUICK:
    sys.argv.remove("--quick")
PART = None
if "--part" in sys.argv:
    at = sys.argv.index("--part")
    PART = sys.argv[at + 1]
    del sys.argv[at:at + 2]
if not any(a.startswith("--seeds") for a in sys.argv):
    sys.argv += ["--seeds", "1337" if IS_QUICK or PART else "1337,1,2,3,4"]
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


def losses_of(rule, width, rate, is_scaled):
    """Returns the loss of each seed."""
    losses = []
    for seed in args.seeds:
        result = runs.train(args, {**settings(rule, width, rate, is_scaled), "train.seed": seed}, BASE, may_fail=True)
        losses.append(math.inf if result.error else result.val_loss)
    print(f"{rule} width {width} rate {rate:.4g} {'mup' if is_scaled else 'plain'}: {runs.mean(losses):.4f}", flush=True)
    return losses


def best_rate(losses):
    """Returns the best rate of {rate: loss}, and whether it lies inside the range that was tried."""
    rates = sorted(losses)
    i = min(range(len(rates)), key=lambda k: losses[rates[k]])
    if i in (0, len(rates) - 1) or math.inf in (losses[rates[i - 1]], losses[rates[i + 1]]):
        return rates[i], 0 < i < len(rates) - 1
    low, middle, high = (losses[rates[k]] for k in (i - 1, i, i + 1))
    curvature = low - 2 * middle + high
    return rates[i] * 2 ** (0.5 * (low - high) / curvature if curvature > 0 else 0), True


rows, verdicts = [], []
for rule in RATES:
    base = {rate: losses_of(rule, WIDTHS[0], rate, False) for rate in RATES[rule]}
    for is_scaled in (False, True):
        cells, parts = [], []
        for width in WIDTHS:
            losses = base if width == WIDTHS[0] else {r: losses_of(rule, width, r, is_scaled) for r in RATES[rule]}
            found = [best_rate({rate: of_seeds[i] for rate, of_seeds in losses.items()}) for i in range(len(args.seeds))]
            logs = {seed: math.log2(rate) for seed, (rate, _) in zip(args.seeds, found)}
            first = logs if width == WIDTHS[0] else first
            change = stats.paired(first, logs, confidence=0.9)
            parts.append(stats.is_within(change, -1, 1))
            cells.append(f"{2**runs.mean(logs.values()):.4f}{'' if all(inside for _, inside in found) else ' (end of the range)'}, "
                         f"x {2**change.value:.2f} ({2**change.low:.2f} to {2**change.high:.2f})")
        if is_scaled:
            verdicts.append(stats.together(parts[1:]))
        rows.append([rule, "mup" if is_scaled else "none", *cells, stats.together(parts[1:])])
runs.write_section(
    args, "Learning rates over width",
    "with the scaling rules, the best rate of width 64 is the best of widths up to 512 within a factor of 2.",
    runs.table(["optimizer", "scaling.width_rule", *(f"width {w}" for w in WIDTHS), "within a factor of 2"], rows),
    stats.together(verdicts),
    "Best rate, and its ratio to that of the smallest width with the 90 % interval over seeds (two one-sided tests). With Muon "
    "the rate is that of the matrices; all other parameters have AdamW at 2^-7. Muon's rows without the rule are its null arm: "
    "where they hold too, the rule adds nothing.")
