#!/usr/bin/env python3
"""Compares FP8 linears with bf16: every recipe of precision.fp8, seed by seed. It ignores times: FP8 is emulated."""

import runs

args = runs.arguments(__doc__)
STEPS = {"train.steps": 250}  # few, because there are fifteen runs
RECIPES = {"bf16": {}, "tensorwise": {"precision.fp8": "tensorwise"}, "rowwise": {"precision.fp8": "rowwise"},
           "rowwise, unrounded weight gradient": {"precision.fp8": "rowwise_gw_hp"},
           "delayed, margin 1, history 16": {"precision.fp8": "delayed", "precision.fp8_margin": 1}}

rows, losses = [], {}
for name, settings in RECIPES.items():
    print(name, flush=True)
    results = runs.over_seeds(args, {**({} if args.full else STEPS), **settings})
    losses[name] = [r.val_loss for r in results]
    change, half = runs.difference(losses["bf16"], losses[name])
    share = lambda key: f"{100 * runs.mean([runs.mean(r.series(key)) for r in results]):.3f} %"  # noqa: E731
    rows.append([name, runs.mean_and_spread(losses[name]),
                 "" if name == "bf16" else f"{change:+.4f} ± {half:.4f}",
                 "" if name == "bf16" else share("fp8_saturated"), "" if name == "bf16" else share("fp8_underflowed")])

is_as_good = {name: runs.is_as_low(losses["bf16"], losses[name]) for name in RECIPES if name != "bf16"}
is_finer = runs.told_apart(losses["tensorwise"], losses["rowwise"])
finer = runs.difference(losses["tensorwise"], losses["rowwise"])
runs.write_section(
    args, "FP8 linears",
    "models train in FP8 as they do in 16 bits: tensorwise scaling works, rowwise may converge a little better.",
    runs.table(["linears of the blocks", "validation loss", "less bf16's, seed by seed", "saturated", "underflowed"], rows),
    "holds" if all(is_as_good.values()) and is_finer == "lower" else
    "holds in part" if any(is_as_good.values()) else "not told apart",
    f"For {sum(is_as_good.values())} of {len(is_as_good)} recipes the 95 % interval excludes a loss 1 % above bf16's. Rowwise against "
    f"tensorwise: {is_finer} ({finer[0]:+.4f} ± {finer[1]:.4f}). Saturated and underflowed are fractions of all values cast.")
