#!/usr/bin/env python3
"""FP8 linears against bf16: every recipe of precision.fp8, seed by seed. No time is compared: FP8 is emulated here."""

import runs

args = runs.arguments(__doc__)
STEPS = {"train.steps": 250}  # fewer than other scripts train: fifteen runs
RECIPES = {"bf16": {}, "tensorwise": {"precision.fp8": "tensorwise"}, "rowwise": {"precision.fp8": "rowwise"},
           "rowwise, unrounded weight gradient": {"precision.fp8": "rowwise_gw_hp"},
           "delayed, margin 1, history 16": {"precision.fp8": "delayed", "precision.fp8_margin": 1}}

rows, losses = [], {}
for name, settings in RECIPES.items():
    print(name, flush=True)
    results = runs.over_seeds(args, {**({} if args.full else STEPS), **settings})
    losses[name] = [r.val_loss for r in results]
    change, error = runs.difference(losses["bf16"], losses[name])
    share = lambda key: f"{100 * runs.mean([runs.mean(r.series(key)) for r in results]):.3f} %"  # noqa: E731
    rows.append([name, runs.mean_and_spread(losses[name]),
                 "" if name == "bf16" else f"{change:+.4f} ± {error:.4f}",
                 "" if name == "bf16" else share("fp8_saturated"), "" if name == "bf16" else share("fp8_underflowed")])

between_seeds = max(losses["bf16"]) - min(losses["bf16"])
costs = {name: runs.difference(losses["bf16"], losses[name])[0] for name in RECIPES if name != "bf16"}
is_as_good = {name: cost <= max(between_seeds, 0.01 * runs.mean(losses["bf16"])) for name, cost in costs.items()}
finer = runs.difference(losses["tensorwise"], losses["rowwise"])
order = ("rowwise ends below tensorwise" if finer[0] < -2 * finer[1] else "rowwise ends above tensorwise"
         if finer[0] > 2 * finer[1] else "rowwise and tensorwise cannot be told apart")
runs.write_section(
    args, "FP8 linears",
    "models train in FP8 as they do in 16 bits: tensorwise scaling works, rowwise may converge a little better.",
    runs.table(["linears of the blocks", "validation loss", "less bf16's, seed by seed", "saturated", "underflowed"], rows),
    "holds" if all(is_as_good.values()) and finer[0] < -2 * finer[1] else
    "holds in part" if any(is_as_good.values()) else "refuted",
    f"bf16's seeds lie {between_seeds:.4f} apart. {sum(is_as_good.values())} of {len(costs)} recipes end within that or 1 % of "
    f"bf16; {order} ({finer[0]:+.4f} ± {finer[1]:.4f}). Saturated and underflowed are of all values cast.")
