#!/usr/bin/env python3
"""Compares the tanh and the sigmoid cap: does 30 sigmoid(x / 7.5) train differently from 15 tanh(x / 15)?

Algebra: 30 sigmoid(x / 7.5) = 15 tanh(x / 15) + 15, and softmax ignores the constant 15. So both must have the same
loss up to rounding. The script trains both in f32 from the same seed, and compares the functions themselves.
"""

import math

import runs

args = runs.arguments(__doc__)
CAPS = {"15 tanh(x/15)": {"model.cap": "tanh", "model.cap_a": 15},
        "30 sigmoid(x/7.5)": {"model.cap": "sigmoid", "model.cap_a": 30, "model.cap_b": 0, "model.cap_c": 7.5}}
FUNCTIONS = {"15 tanh(x/15)": lambda x: 15 * math.tanh(x / 15),
             "30 sigmoid(x/7.5)": lambda x: 30 / (1 + math.exp(-x / 7.5))}


def slope_peak(f):
    h = 1e-4
    return max((f(x + h) - f(x - h)) / (2 * h) for x in [i / 100 for i in range(-3000, 3001)])


losses, rows = {}, []
for name, settings in CAPS.items():
    print(name, flush=True)
    results = runs.over_seeds(args, {**settings, "precision.compute": "f32"})
    losses[name] = [r.series("loss") for r in results]
    f = FUNCTIONS[name]
    rows.append([name, f"{f(-300):.1f} to {f(300):.1f}", f"{slope_peak(f):.3f}",
                 f"{f(60) - f(59):.4f} / {f(-59) - f(-60):.4f}", runs.mean_and_spread([r.val_loss for r in results])])

first, second = losses.values()
first_step = max(abs(a[0] - b[0]) for a, b in zip(first, second))
early = max(abs(x - y) for a, b in zip(first, second) for x, y in zip(a[:50], b[:50]))
seeds = runs.spread([a[-1] for a in first])
body = runs.table(["form", "range", "largest slope", "slope at x = 60 / -60", "validation loss"], rows)
body += (f"\n\nTraining losses of the two forms, same seed: first step equal within {first_step:.1e}, steps 1 to 50 within "
         f"{early:.1e} nats (the last losses of different seeds scatter by {seeds:.1e}).")
same = first_step < 1e-5 and early < 1e-3
runs.write_section(
    args, "Logit offset: tanh against sigmoid",
    "the sigmoid form has gradient peak 2.0 instead of 1.0, saturates upwards only, and improves the loss by 0.06.",
    body, "refuted" if same else "holds in part",
    "The forms differ by the constant 15, which softmax ignores: the same slope (peak 1, not 2), the same saturation on both "
    "sides, and the same loss up to rounding. What the offset changes is the rounding of the logits only, where they are "
    "stored in a short format."
    if same else "The two forms' losses differ by more than rounding explains: look into it.")
