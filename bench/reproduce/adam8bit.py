#!/usr/bin/env python3
"""AdamW with 8-bit states (Dettmers et al. 2022, arXiv:2110.02861) against AdamW with f32 states."""

import runs

args = runs.arguments(__doc__)
losses = {}
for kind in ("adamw", "adamw8bit"):
    print(kind, flush=True)
    losses[kind] = [r.val_loss for r in runs.over_seeds(args, {"optimizer.kind": kind})]
wide, narrow = losses["adamw"], losses["adamw8bit"]
between_seeds = max(wide) - min(wide)
change, error = runs.difference(wide, narrow)
runs.write_section(
    args, "8-bit against f32 AdamW",
    "AdamW with 8-bit states reaches the loss of AdamW with f32 states.",
    runs.table(["states", *(f"seed {s}" for s in args.seeds), "mean", "bytes of state per parameter"],
               [["f32", *(f"{x:.4f}" for x in wide), f"{runs.mean(wide):.4f}", "8"],
                ["8-bit", *(f"{x:.4f}" for x in narrow), f"{runs.mean(narrow):.4f}", "2.03"]]),
    "holds" if abs(change) <= between_seeds else "refuted",
    f"Validation loss, nats per token. 8-bit less f32, seed by seed: {change:+.4f} ± {error:.4f}; the f32 seeds lie "
    f"{between_seeds:.4f} apart.")
