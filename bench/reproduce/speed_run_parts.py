#!/usr/bin/env python3
"""What each part of the speed run's model is worth: trains hybrid-124m-tiny whole and without one part at a time, and writes a
section of docs/reproductions.md.

  bench/reproduce/speed_run_parts.py [--seeds 1,2,3,4,5] [--steps 200] [--data PATH]

Rates stay as they are, so a part may be worth less here than with rates of its own. Options are those of runs.py."""

import sys
import tomllib
from concurrent.futures import ThreadPoolExecutor

import results
import runs

sys.path.insert(0, str(results.ROOT / "bench"))
import stats  # noqa: E402

STEPS = 200
PARTS = {
    "value embeddings": {"model.value_embeddings": 0},
    "skips between blocks": {"model.skips": False},
    "mix of the first input": {"model.input_mix": False},
    "norm of the embedding": {"model.embedding_norm": False},
    "a block without attention": {"model.mlp_only_layers": []},
    "half of the channels rotate": {"model.rope_dims": 0},
    "window that grows": {"schedule.window": []},
}
ARMS = {
    "whole": {},
    "whole, other seeds": {"seed": 100},
    **{f"without: {part}" if part != "half of the channels rotate" else "all channels rotate": own for part, own in PARTS.items()},
    "without all of these": {key: value for own in PARTS.values() for key, value in own.items()},
}


def preset():
    """Returns the preset as {"section.key": value}."""
    text = (results.ROOT / "configs" / "hybrid-124m-tiny.toml").read_text()
    flat = {}
    for section, keys in tomllib.loads(text).items():
        flat.update({f"{section}.{key}": value for key, value in keys.items()})
    return {**flat, "train.steps": STEPS, "train.threads": 1, "eval.every": 0, "sample.count": 0, "train.stats_every": 0}


def judged(by_arm, steps=STEPS):
    """Returns table, verdict and explanation for the losses of each arm, which have the same seeds in the same order."""
    whole = by_arm["whole"]
    changes = {arm: stats.mean_interval([x - y for x, y in zip(own, whole)]) for arm, own in by_arm.items() if arm != "whole"}
    answers = {arm: stats.told_apart(change) for arm, change in changes.items()}
    rows = [["whole", f"{runs.mean(whole):.4f}", "", ""]]
    rows += [[arm, f"{runs.mean(by_arm[arm]):.4f}", f"{change.value:+.4f} ± {(change.high - change.low) / 2:.4f}", answers[arm]]
             for arm, change in changes.items()]
    of_parts = [arm for arm in answers if arm not in ("whole, other seeds", "without all of these")]
    higher, lower = ([arm for arm in of_parts if answers[arm] == answer] for answer in ("higher", "lower"))
    verdict = ("holds" if len(higher) == len(of_parts) else "in part" if higher else "refuted" if lower else "not told apart")

    def names(arms):
        return ", ".join(arm.removeprefix("without: ") for arm in arms) or "none"

    meaning = (f"{len(whole)} seeds per row, {steps} steps of 2,048 tokens; differences are paired by seed, with half of the 95 % interval. "
               f"Without one of {len(of_parts)} parts the loss is higher, by more than the interval, for {len(higher)} ({names(higher)}), and lower for "
               f"{len(lower)} ({names(lower)}). The row of other seeds is the same model and shows what chance does. "
               "The rates are those of the whole model.")
    return runs.table(["model", "validation loss", "less that of the whole", "answer"], rows), verdict, meaning


def main():
    args = runs.arguments(__doc__)
    if args.seeds == [1337, 1, 2]:
        args.seeds = [1, 2, 3, 4, 5]
    base = preset()

    def loss(job):
        arm, seed = job
        own = {key: value for key, value in ARMS[arm].items() if key != "seed"}
        found = runs.train(args, {**own, "train.seed": seed + ARMS[arm].get("seed", 0)}, base).val_loss
        print(f"{arm}, seed {seed}: {found:.4f}", flush=True)
        return found

    jobs = [(arm, seed) for seed in args.seeds for arm in ARMS]
    with ThreadPoolExecutor(2) as pool:  # a run has one thread
        losses = dict(zip(jobs, pool.map(loss, jobs)))
    body, verdict, meaning = judged({arm: [losses[arm, seed] for seed in args.seeds] for arm in ARMS}, args.steps or STEPS)
    runs.write_section(args, "The parts of the speed run's model", "each part of the model of record 19 of the speed run lowers the loss.", body, verdict, meaning)


if __name__ == "__main__":
    main()
