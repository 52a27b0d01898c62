#!/usr/bin/env python3
"""Compares learning-rate schedules with the same model, optimizer and seeds."""

import runs

args = runs.arguments(__doc__)
STEPS = {} if args.full else {"train.steps": 250}  # few, because there are twenty-four runs
WSD = {"schedule.kind": "wsd", "schedule.cooldown_frac": 0.2, "schedule.floor": 0.0}
SHAPES = {
    "constant": {"schedule.kind": "constant"},
    "cosine to 0.1": {"schedule.kind": "cosine", "schedule.floor": 0.1},
    "linear to 0": {"schedule.kind": "linear", "schedule.floor": 0.0},
    "WSD, linear, 20 %": {**WSD, "schedule.cooldown_curve": "linear"},
    "WSD, 1-sqrt, 20 %": {**WSD, "schedule.cooldown_curve": "1-sqrt"},
    "constant, then to 0 over 40 %": {**WSD, "schedule.cooldown_frac": 0.4},
    "constant, then to 0.1 over 40 %": {**WSD, "schedule.cooldown_frac": 0.4, "schedule.floor": 0.1},
    "three phases, 30/40/30": {"schedule.kind": "phases",
                               "schedule.phases": ["30% constant", "40% linear to 0.1", "30% constant"]},
}

rows, losses = [], {}
for name, settings in SHAPES.items():
    print(name, flush=True)
    losses[name] = [r.val_loss for r in runs.over_seeds(args, {**STEPS, **settings})]
    change, half = runs.difference(losses["constant"], losses[name])
    rows.append([name, runs.mean_and_spread(losses[name]),
                 "" if name == "constant" else f"{change:+.4f} ± {half:.4f}",
                 "" if name == "constant" else runs.told_apart(losses["constant"], losses[name])])
orders = [runs.told_apart(losses["constant"], losses[name]) for name in SHAPES if name != "constant"]
# Isolates the floor: the same cool-down to 0 and to 0.1.
floor = runs.told_apart(losses["constant, then to 0 over 40 %"], losses["constant, then to 0.1 over 40 %"])
runs.write_section(
    args, "Schedules side by side",
    "a decay at the end matters, its shape little; a floor of 0.1 keeps the model learning and is better than 0.",
    runs.table(["schedule", "validation loss", "less constant, seed by seed", "told apart"], rows),
    "holds" if set(orders) == {"lower"} and floor == "lower" else
    "holds in part" if "lower" in orders else "refuted" if set(orders) == {"higher"} else "not told apart",
    f"Against the constant rate {orders.count('lower')} of {len(orders)} decays are lower, {orders.count('higher')} higher, the others "
    f"not told apart; a floor of 0.1 instead of 0: {floor}. Peak rate and warm-up are the same for all and were not tuned for each.")
