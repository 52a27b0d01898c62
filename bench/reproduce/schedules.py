#!/usr/bin/env python3
"""Schedules side by side: the same model, optimizer and seeds under every shape of the learning rate."""

import runs

args = runs.arguments(__doc__)
STEPS = {} if args.full else {"train.steps": 250}  # fewer than other scripts train: twenty-one runs
WSD = {"schedule.kind": "wsd", "schedule.cooldown_frac": 0.2, "schedule.floor": 0.0}
SHAPES = {
    "constant": {"schedule.kind": "constant"},
    "cosine to 0.1": {"schedule.kind": "cosine", "schedule.floor": 0.1},
    "linear to 0": {"schedule.kind": "linear", "schedule.floor": 0.0},
    "WSD, linear, 20 %": {**WSD, "schedule.cooldown_curve": "linear"},
    "WSD, 1-sqrt, 20 %": {**WSD, "schedule.cooldown_curve": "1-sqrt"},
    "constant, then to 0.1 over 40 %": {**WSD, "schedule.cooldown_frac": 0.4, "schedule.floor": 0.1},
    "three phases, 30/40/30": {"schedule.kind": "phases",
                               "schedule.phases": ["30% constant", "40% linear to 0.1", "30% constant"]},
}

rows, losses = [], {}
for name, settings in SHAPES.items():
    print(name, flush=True)
    losses[name] = [r.val_loss for r in runs.over_seeds(args, {**STEPS, **settings})]
    rows.append([name, runs.mean_and_spread(losses[name])])
constant = losses["constant"]
decays = [name for name in SHAPES if name != "constant"]
better = [name for name in decays if runs.mean(losses[name]) < runs.mean(constant)]
runs.write_section(
    args, "Schedules side by side",
    "a decay at the end matters, its shape little; a floor of 0.1 keeps the model learning and is better than 0.",
    runs.table(["schedule", "validation loss"], rows),
    "holds" if len(better) == len(decays) and runs.mean(losses["constant, then to 0.1 over 40 %"]) <
    runs.mean(losses["WSD, linear, 20 %"]) else "holds in part" if better else "refuted",
    f"{len(better)} of {len(decays)} decays end below the constant rate. Peak rate and warm-up are the same for all: in so short a "
    "run a rate that falls from early on loses more than its low end gains.")
