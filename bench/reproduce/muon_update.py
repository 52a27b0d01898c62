#!/usr/bin/env python3
"""Measures how much of an update lies along the weights: <dW, W> of Muon and of SGD, on the matrices of the blocks."""

import runs

args = runs.arguments(__doc__)
ADAMW = {"optimizer.kind": "adamw", "optimizer.lr": 3e-3, "train.stats_every": 5}
MATRICES = {
    "Muon": {"kind": "muon", "lr": 0.03, "weight_decay": 0.0},
    "SGD with momentum 0.9": {"kind": "momentum", "lr": 0.3, "weight_decay": 0.0},
}


def of_matrices(result, key):
    """Returns the values of the key for the matrices of the blocks, without the first fifth of the run."""
    begin = result.summary["steps"] / 5
    return [line[key] for line in result.params
            if line["step"] > begin and line["param"].startswith("blocks.") and "norm" not in line["param"]
            and line.get(key) is not None]


rows, cosines, by_seed = [], {}, {}
for name, group in MATRICES.items():
    print(name, flush=True)
    results = runs.over_seeds(args, {**ADAMW, "optimizer.group": [{"roles": ["matrix"], **group}]})
    by_seed[name] = []
    for r in results:
        pairs = zip(of_matrices(r, "update_projection"), of_matrices(r, "update_ratio"))
        by_seed[name].append(runs.mean([abs(p) / q for p, q in pairs if q > 0]))
    projection = [abs(x) for r in results for x in of_matrices(r, "update_projection")]
    ratio = [x for r in results for x in of_matrices(r, "update_ratio")]
    cosines[name] = [p / q for p, q in zip(projection, ratio) if q > 0]
    rows.append([name, f"{runs.mean(ratio):.2e}", f"{runs.mean(projection):.2e} ± {runs.spread(projection):.1e}",
                 f"{runs.mean(cosines[name]):.3f} ± {runs.spread(cosines[name]):.3f}",
                 runs.mean_and_spread([r.val_loss for r in results])])
muon, sgd = (runs.mean(c) for c in cosines.values())
order = runs.told_apart(*reversed(by_seed.values()))
runs.write_section(
    args, "Updates along the weights: Muon against SGD",
    "⟨ΔW, W⟩ is 0.03 ± 0.01 for Muon and 0.12 ± 0.03 for SGD, a quarter (the normalisation is not published).",
    runs.table(["rule of the matrices", "‖ΔW‖/‖W‖", "size of ⟨ΔW, W⟩/‖W‖²", "size of cos(ΔW, W)", "validation loss"], rows),
    order if order == "not told apart" else "refuted" if order == "higher" else "holds" if muon < 0.5 * sgd else "holds in part",
    f"The cosine does not depend on the learning rate, so it is what the verdict is about: Muon's is {muon / sgd:.2f} times that "
    f"of SGD with momentum, seed by seed {order}. Figures after ± are the scatter over matrices, steps and seeds. Embedding, head "
    "and norms have AdamW in both; the two runs end at different losses, and plain SGD was not run.")
