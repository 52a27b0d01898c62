#!/usr/bin/env python3
"""Compares optimizers with the same model, data, schedule and seeds: validation loss and bytes of state.

--tune tries a third of and three times each learning rate on the first seed, prints the results, and writes nothing.
"""

import sys

import runs

IS_TUNING = "--tune" in sys.argv
if IS_TUNING:
    sys.argv.remove("--tune")
args = runs.arguments(__doc__)
STEPS = {} if args.full else {"train.steps": 250}  # few, because there are twenty-seven runs
MUON = {"roles": ["matrix"], "kind": "muon", "weight_decay": 0.0}
# Rule -> (learning rate, settings). Every rate is the best of at least three, a factor of 3 apart, on seed 1337
# (--tune); the rates of Adam with L2 and of AdamW beside Muon were not tuned separately.
RULES = {
    "sgd": (1.0, {"optimizer.kind": "sgd", "optimizer.weight_decay": 0.0}),
    "momentum 0.9": (0.3, {"optimizer.kind": "momentum", "optimizer.weight_decay": 0.0}),
    "adam, no decay": (3e-3, {"optimizer.kind": "adam", "optimizer.weight_decay": 0.0}),
    "adam, L2": (3e-3, {"optimizer.kind": "adam", "optimizer.weight_decay": 0.1}),
    "adamw": (3e-3, {"optimizer.kind": "adamw"}),
    "adamw8bit": (3e-3, {"optimizer.kind": "adamw8bit"}),
    "adafactor": (3e-3, {"optimizer.kind": "adafactor", "optimizer.relative_step": False}),
    "lion": (1.5e-3, {"optimizer.kind": "lion", "optimizer.weight_decay": 0.3}),
    "muon + adamw": (0.01, {"optimizer.kind": "adamw", "optimizer.lr": 3e-3}),  # the first rate is Muon's
}


def settings(name, lr):
    own = RULES[name][1]
    rate = {"optimizer.group": [{**MUON, "lr": lr}]} if name.startswith("muon") else {"optimizer.lr": lr}
    return {**STEPS, **own, **rate}


if IS_TUNING:
    for name, (lr, _) in RULES.items():
        for rate in (lr / 3, lr, 3 * lr):
            result = runs.train(args, {**settings(name, rate), "train.seed": args.seeds[0]}, may_fail=True)
            print(f"{name} at {rate:.1g}: {result.error or result.val_loss}", flush=True)
    sys.exit()

rows, losses = [], {}
for name, (lr, _) in RULES.items():
    print(name, flush=True)
    results = runs.over_seeds(args, settings(name, lr))
    losses[name] = [r.val_loss for r in results]
    arenas = results[0].metrics[0]
    state = 4 * arenas["bytes_optimizer"] / arenas["bytes_gradients"]  # gradients are f32
    rows.append([name, lr, runs.mean_and_spread(losses[name]), f"{state:.2f}"])
orders = {pair: runs.told_apart(losses[pair[0]], losses[pair[1]])
          for pair in (("sgd", "momentum 0.9"), ("momentum 0.9", "adamw"), ("adam, L2", "adamw"), ("adamw", "adamw8bit"))}
claims = [orders["sgd", "momentum 0.9"] == "lower", orders["momentum 0.9", "adamw"] == "lower",
          runs.is_as_low(losses["adamw"], losses["adamw8bit"])]
runs.write_section(
    args, "Optimizers side by side",
    "SGD fails on transformers and needs momentum, the adaptive rules train them well; 8-bit states cost nothing.",
    runs.table(["rule", "learning rate", "validation loss", "bytes of state per parameter"], rows),
    "holds" if all(claims) else "holds in part" if any(claims) else "refuted",
    "Same model, data, schedule and seeds. Seed by seed: "
    + "; ".join(f"{b} against {a}: {order}" for (a, b), order in orders.items())
    + ". Runs are short, so the order of the adaptive rules may change with length and tuning.")
