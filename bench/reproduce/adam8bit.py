#!/usr/bin/env python3
"""Compares AdamW with 8-bit states (Dettmers et al. 2022, arXiv:2110.02861) with AdamW with f32 states."""

import runs

args = runs.arguments(__doc__)
losses = {}
for kind in ("adamw", "adamw8bit"):
    print(kind, flush=True)
    losses[kind] = [r.val_loss for r in runs.over_seeds(args, {"optimizer.kind": kind})]
wide, narrow = losses["adamw"], losses["adamw8bit"]
change, half = runs.difference(wide, narrow)
runs.write_section(
    args, "8-bit against f32 AdamW",
    "AdamW with 8-bit states reaches the loss of AdamW with f32 states.",
    runs.table(["states", *(f"seed {s}" for s in args.seeds), "mean", "bytes of state per parameter"],
               [["f32", *(f"{x:.4f}" for x in wide), f"{runs.mean(wide):.4f}", "8"],
                ["8-bit", *(f"{x:.4f}" for x in narrow), f"{runs.mean(narrow):.4f}", "2.03"]]),
    "holds" if runs.is_as_low(wide, narrow) else "refuted" if runs.told_apart(wide, narrow) == "higher" else "not told apart",
    f"Validation loss, nats per token. 8-bit less f32, seed by seed: {change:+.4f} ± {half:.4f} (95 % interval). The claim holds "
    f"if the interval excludes a loss that is 1 % ({0.01 * runs.mean(wide):.3f}) higher.")
