#!/usr/bin/env python3
"""Trains the tiny twin of every published recipe (configs/*-tiny.toml) on several seeds, and writes results/twins.json.

A twin has 4 layers of width 256 and trains on a quarter of a million tokens, an eighth of its own length; schedules
shrink with it. It trains on one rank, whatever layout its recipe has, and on one thread, as many twins at once as there are
cores. The figure "loss_spike" is the largest rise of one step's training loss above the lowest mean of eight steps before it. A
single hard batch is one too, so "lasting_rise" is that of the mean of eight steps. The arm "worst of all" has the largest
figures of each seed. Runs that are in the file are not repeated.
"""

import argparse
import math
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import experiments
import results
import runs

RECIPES = sorted(path.stem for path in (results.ROOT / "configs").glob("*-tiny.toml"))
WORST = "worst of all"
RISES = ("loss_spike", "lasting_rise")


def train(options, recipe, seed):
    """Returns the figures of a run; they are infinite if it ended with an error."""
    folder = Path(tempfile.mkdtemp(prefix="reproduce-"))
    settings = {"train.seed": seed, "sample.count": 0, "eval.every": 0, "train.max_tokens": options.tokens, "train.log_every": 1,
                "train.threads": 1, **{f"parallel.{axis}": 1 for axis in ("dp", "fsdp", "tp", "pp")}}
    command = [options.ingot, "train", recipe, "--data", options.data, "--out", str(folder / "run")]
    for key, value in settings.items():
        command += ["--set", f"{key}={value}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if not (folder / "run" / "run.json").exists():
        sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    run = runs.Result(folder / "run")
    shutil.rmtree(folder)
    if done.returncode != 0:
        return dict.fromkeys(("loss", *RISES), math.inf)
    losses = run.series("loss")
    return {"loss": run.val_loss, "loss_spike": experiments.spikes(losses), "lasting_rise": experiments.lasting_rise(losses)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--tokens", default="256k", help="of every run")
    parser.add_argument("--recipes", type=int, default=len(RECIPES), help="only the last ones, for a try; takes --out")
    parser.add_argument("--out", type=Path, default=results.FOLDER)
    parser.add_argument("--data", default="builtin:cpp-headers")
    parser.add_argument("--ingot", default=str(results.ROOT / "build/release/ingot"))
    options = parser.parse_args()
    if options.recipes < len(RECIPES) and options.out == results.FOLDER:
        parser.error("--recipes makes figures that must not be judged: give --out FOLDER with it")
    recipes = RECIPES[-options.recipes:]
    result = {**results.provenance((*results.KERNELS, "configs")), "tokens": options.tokens, "arms": {}}
    old = results.load("twins", options.out)
    if old and all(old.get(key) == result[key] for key in ("sources", "machine", "tokens")):
        result = old
    arms = result["arms"]
    seeds = [str(seed) for seed in range(1, options.seeds + 1)]
    missing = [(recipe, seed) for seed in seeds for recipe in recipes if seed not in arms.get(recipe, {}).get(RISES[-1], {})]
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for (recipe, seed), figures in zip(missing, pool.map(lambda pair: train(options, *pair), missing)):
            for figure, value in figures.items():
                arms.setdefault(recipe, {}).setdefault(figure, {})[seed] = value
            print(f"{recipe}, seed {seed}: {arms[recipe]['loss'][seed]:.4f}", flush=True)
            results.save("twins", result, options.out)
    for figure in RISES:
        worst = {seed: max(arms[recipe][figure][seed] for recipe in recipes) for seed in seeds}
        arms.setdefault(WORST, {})[figure] = worst
    results.save("twins", result, options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
