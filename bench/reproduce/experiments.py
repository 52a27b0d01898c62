#!/usr/bin/env python3
"""Trains the arms of the experiments that docs/claims.md judges, and writes their figures by seed to results/NAME.json.

  bench/reproduce/experiments.py [NAME...] [--budget 30m] [--seeds 8] [--steps N] [--out FOLDER] [--list]

Every arm trains on the same seeds, 1 to --seeds. Where an experiment has alternatives (rates, decays), each arm first
takes the one with the lowest mean loss over two seeds, 101 and 102, that are not judged. A run takes one thread, and as
many runs are made at once as there are cores. A script that was stopped, or
whose --budget is over, continues where it was if it is called again with the same options and sources. This script judges nothing: claims.toml has
the rules, and claims.py applies them.
"""

import argparse
import itertools
import math
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import results
import runs

TUNING_SEEDS = (101, 102)
# A LLaMA of 0.2M parameters with a BPE of 1,024 tokens, which trains in two seconds.
TINY = {
    "model.layers": 2, "model.width": 64, "model.heads": 4, "model.context": 64, "model.norm": "rmsnorm",
    "model.positions": "rope", "model.mlp": "swiglu", "model.tied": False, "data.tokenizer": "bpe",
    "data.tokenizer_vocab": 1024, "train.batch_size": 16, "train.steps": 200, "train.log_every": 1,
    "train.stats_every": 0, "schedule.warmup_steps": 20, "eval.every": 0, "eval.max_tokens": 65536,
    "sample.count": 0, "train.threads": 1, "optimizer.lr": 8e-3, "precision.compute": "bf16", "guard.non_finite": "stop",
}


def rates(*values):
    return [{"optimizer.lr": value} for value in values]


AROUND_ADAMW = rates(4e-3, 8e-3, 1.6e-2)
TANH = {"model.cap": "tanh", "model.cap_a": 15}
SIGMOID = {"model.cap": "sigmoid", "model.cap_a": 30, "model.cap_b": 0, "model.cap_c": 7.5}
WSD = {"schedule.kind": "wsd", "schedule.cooldown_frac": 0.2, "schedule.floor": 0.0}
COOL = {**WSD, "schedule.cooldown_frac": 0.4}
FP8_HEAD = {"head.precision": "fp8"}
MATRICES = {"roles": ["matrix"], "weight_decay": 0.0}
SILENT = {"head.raw_ce_every": 5, "head.raw_ce_tokens": 256, "head.raw_ce_limit": 1e6, "head.raw_ce_bias_limit": 1e6,
          "guard.non_finite": "skip"}


def late(values):
    """Returns the mean over the last three quarters of a run."""
    return runs.mean(values[len(values) // 4:])


def spikes(losses):
    """Returns by how many nats the loss rises at most above the lowest mean of eight steps before it."""
    means = [runs.mean(losses[i:i + 8]) for i in range(len(losses) - 7)]
    return max(loss - min(means[:i]) for i, loss in enumerate(losses[8:], 1))


def lasting_rise(losses):
    """Returns by how many nats the mean of eight steps rises at most above the lowest mean of eight steps before them."""
    means = [runs.mean(losses[i:i + 8]) for i in range(len(losses) - 7)]
    return max(mean - min(means[:i - 7]) for i, mean in enumerate(means) if i >= 8)


def norm_before_spike(result):
    """Returns the mean gradient norm of the five steps before the largest rise of the loss, over the median norm."""
    losses, norms = result.series("loss"), result.series("grad_norm")
    rises = [loss - runs.mean(losses[i:i + 8]) for i, loss in enumerate(losses[8:])]
    spike = 8 + rises.index(max(rises))
    return runs.mean(norms[spike - 5:spike]) / statistics.median(norms)


def matrix_updates(result, is_signed):
    """Returns the mean cosine between update and weight of the blocks' matrices, after the first fifth of the run."""
    begin = result.summary["steps"] / 5
    lines = [line for line in result.params if line["step"] > begin and line["param"].startswith("blocks.")
             and "norm" not in line["param"] and line.get("update_ratio")]
    return runs.mean([(line["update_projection"] if is_signed else abs(line["update_projection"])) / line["update_ratio"]
                      for line in lines])


def state_bytes(result):
    arenas = result.metrics[0]
    return 4 * arenas["bytes_optimizer"] / arenas["bytes_gradients"]  # gradients are f32


FIGURES = {
    "loss": lambda r: r.val_loss,
    "grad_norm": lambda r: late(r.series("grad_norm")),
    "saturated": lambda r: 100 * runs.mean(r.series("fp8_saturated")),
    "underflowed": lambda r: 100 * runs.mean(r.series("fp8_underflowed")),
    "trained_less_true": lambda r: late(r.series("raw_ce_gap")),
    "true_rises": lambda r: r.series("raw_ce_fp32")[-1] - min(r.series("raw_ce_fp32")),
    "loss_spike": lambda r: spikes(r.series("loss")),
    "norm_before_spike": norm_before_spike,
    "cosine": lambda r: matrix_updates(r, True),
    "size_of_cosine": lambda r: matrix_updates(r, False),
    "state_bytes": state_bytes,
    "peak_bytes": lambda r: sum(value for key, value in r.metrics[0].items() if key.startswith("bytes_")),
    "first_step": lambda r: r.series("loss")[0],
    "early_loss": lambda r: runs.mean(r.series("loss")[:50]),
}

# Name -> (arms, figures, settings of all arms, alternatives that each arm chooses from).
EXPERIMENTS = {
    "ablation": ({"bf16 head, tanh, to 0": {**TANH, **COOL}, "+ FP8 head": {**TANH, **COOL, **FP8_HEAD},
                  "+ logit offset": {**SIGMOID, **COOL, **FP8_HEAD},
                  "+ floor of 0.1": {**SIGMOID, **COOL, **FP8_HEAD, "schedule.floor": 0.1}}, ["loss", "peak_bytes"], {}, []),
    "caps": ({"tanh": TANH, "sigmoid": SIGMOID}, ["first_step", "early_loss", "loss"], {"precision.compute": "f32"}, []),
    "head_scales": ({"x 2, w 32": {}, "x 1, w 32": {"head.fp8_x_scale": 1.0}, "x 2, w 1": {"head.fp8_w_scale": 1.0}},
                    ["loss", "saturated", "underflowed"], {**SIGMOID, **FP8_HEAD}, []),
    "fp8_linears": ({"bf16": {}, "tensorwise": {"precision.fp8": "tensorwise"}, "rowwise": {"precision.fp8": "rowwise"},
                     "delayed, margin 1": {"precision.fp8": "delayed", "precision.fp8_margin": 1}}, ["loss"], {}, []),
    "bf16_loss": ({"f32": {}, "bf16 logits, f32 loss": {"head.loss_dtype": "bf16_logits"},
                   "all in bf16": {"head.loss_dtype": "bf16"},
                   "f16 and scaler, all in bf16": {"head.loss_dtype": "bf16", "head.precision": "bf16",
                                                   "precision.compute": "f16"}},
                  ["loss", "trained_less_true", "true_rises"],
                  {**SILENT, "train.steps": 600, "data.tokenizer_vocab": 4096}, []),
    "bf16_loss_131072": ({"bf16 logits, f32 loss": {"head.loss_dtype": "bf16_logits"}, "all in bf16": {"head.loss_dtype": "bf16"}},
                         ["trained_less_true", "true_rises"], {**SILENT, "train.steps": 20, "schedule.warmup_steps": 10, "train.batch_size": 4, "model.vocab": 131072}, []),
    "precision": ({"f32": {"precision.compute": "f32"}, "bf16": {}, "f16, scaler": {"precision.compute": "f16"},
                   "f16, no scaler": {"precision.compute": "f16", "precision.loss_scale": 1.0}}, ["loss"], {}, []),
    "optimizers": ({
        "sgd": {"optimizer.kind": "sgd", "optimizer.weight_decay": 0.0, "tune": rates(0.3, 1.0, 3.0)},
        "momentum": {"optimizer.kind": "momentum", "optimizer.weight_decay": 0.0, "tune": rates(0.1, 0.3, 1.0)},
        "adam": {"optimizer.kind": "adam", "optimizer.weight_decay": 0.0},
        "adamw": {"optimizer.kind": "adamw"}, "adamw8bit": {"optimizer.kind": "adamw8bit"},
        "adafactor": {"optimizer.kind": "adafactor", "optimizer.relative_step": False},
        "lion": {"optimizer.kind": "lion", "optimizer.weight_decay": 0.3, "tune": rates(1e-3, 2e-3, 4e-3)}},
        ["loss", "state_bytes"], {}, AROUND_ADAMW),
    "decay": ({"none": {"optimizer.kind": "adam", "optimizer.weight_decay": 0.0, "tune": [{}]},
               "L2": {"optimizer.kind": "adam"}, "decoupled": {"optimizer.kind": "adamw"}}, ["loss"], {},
              [{"optimizer.weight_decay": d} for d in (1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0)]),
    "beta2": ({"0.95": {"optimizer.beta2": 0.95}, "0.999": {"optimizer.beta2": 0.999}}, ["loss", "loss_spike"], {}, AROUND_ADAMW),
    "warmup": ({f"{kind}, {'warm-up' if steps else 'none'}": {**own, "schedule.warmup_steps": steps}
                for kind, own in {"adamw": {"tune": AROUND_ADAMW},
                                  "sgd": {"optimizer.kind": "sgd", "tune": rates(0.3, 1.0, 3.0)},
                                  "muon": {"optimizer.group": [{**MATRICES, "kind": "muon", "lr": 0.02}], "tune": AROUND_ADAMW}
                                  }.items() for steps in (0, 20)}, ["loss"], {}, []),
    "clipping": ({f"{clip}, {rate}": {"optimizer.grad_clip": clip, "optimizer.lr": rate}
                  for clip in (0.0, 1.0) for rate in (8e-3, 6.4e-2)}, ["loss", "loss_spike"], {}, []),
    "norm_before_spike": ({"unclipped, 0.064": {"optimizer.grad_clip": 0.0, "optimizer.lr": 6.4e-2}}, ["norm_before_spike"], {}, []),
    "schedules": ({
        "constant": {"schedule.kind": "constant"}, "cosine to 0.1": {"schedule.kind": "cosine", "schedule.floor": 0.1},
        "WSD, 20 % to 0": WSD, "40 % to 0": COOL, "40 % to 0.1": {**COOL, "schedule.floor": 0.1},
        "30/40/30": {"schedule.kind": "phases", "schedule.phases": ["30% constant", "40% linear to 0.1", "30% constant"]}},
        ["loss"], {}, AROUND_ADAMW),
    "muon_update": ({"muon": {"optimizer.group": [{**MATRICES, "kind": "muon", "lr": 0.02}]},
                     "sgd": {"optimizer.group": [{**MATRICES, "kind": "sgd", "lr": 1.0}]},
                     "momentum": {"optimizer.group": [{**MATRICES, "kind": "momentum", "lr": 0.3}]}},
                    ["cosine", "size_of_cosine", "loss"], {"train.stats_every": 5}, []),
    "gradient_norm": ({"bf16 head": {}, "FP8 head": FP8_HEAD}, ["grad_norm", "loss"], SIGMOID, []),
    "gradient_norm_65536": ({"bf16 head": {}, "FP8 head": FP8_HEAD}, ["grad_norm"],
                            {**SIGMOID, "train.batch_size": 1024, "train.steps": 16, "schedule.warmup_steps": 4}, []),
    "payload": ({"f32": {}, "bf16": {"parallel.payload": "bf16", "parallel.payload_ends": "bf16"},
                 "f16": {"parallel.payload": "f16", "parallel.payload_ends": "f16"}}, ["loss"], {"parallel.dp": 2}, []),
    "cut_cross_entropy": ({"dense": {"head.kind": "dense"}, "recompute, f32": {"head.kind": "recompute"},
                           "recompute, Kahan": {"head.kind": "recompute", "head.accumulation": "kahan"}}, ["loss"], {}, []),
    "rate_of_width": ({"width 32": {"model.width": 32, "model.heads": 2}, "width 128": {"model.width": 128, "model.heads": 8},
                       "width 128, muP": {"model.width": 128, "model.heads": 8, "scaling.base": "width=32 head_dim=16"}},
                      ["best_log2_rate"], {"train.steps": 100}, rates(*(2.0**k for k in range(-10, -2)))),
    "rate_of_batch": ({f"batch {b}": {"train.batch_size": b} for b in (8, 32)}, ["best_log2_rate"], {},
                      rates(*(2.0**k for k in range(-10, -3)))),
    "rate_of_depth": ({f"{n} layers": {"model.layers": n} for n in (2, 8)}, ["best_log2_rate"], {"train.steps": 100},
                      rates(*(2.0**k for k in range(-10, -3)))),
}


class OutOfTime(Exception):
    pass


class Experiment:
    """Trains one experiment; every finished run is written to the file of results, or to its "tuning", at once."""

    def __init__(self, name, options, end):
        self.name, self.options, self.end = name, options, end
        self.arms, self.figures, self.common, self.alternatives = EXPERIMENTS[name]
        self.seeds = [str(seed) for seed in range(1, options.seeds + 1)]
        fresh = results.provenance()
        fresh["command"] += f" {name}"
        fresh.update(arms={}, tuned={}, tuning={}, settings={**TINY, **self.common}, arms_settings=self.arms)
        old = results.load(name, options.out)
        same = ("sources", "settings", "arms_settings", "machine")
        self.result = old if old and all(old.get(key) == fresh[key] for key in same) else fresh
        self.jobs = max(1, len(os.sched_getaffinity(0)) // self.common.get("parallel.dp", 1))
        self.lock = threading.Lock()

    def side_by_side(self, work, items):
        with ThreadPoolExecutor(self.jobs) as pool:
            return list(pool.map(work, items))

    def train(self, settings, seed):
        if time.monotonic() > self.end:
            raise OutOfTime
        merged = {**self.common, **{k: v for k, v in settings.items() if k != "tune"}, "train.seed": int(seed)}
        return runs.train(self.options, merged, TINY, may_fail=True)

    def loss(self, settings, seed):
        """Returns the loss of a run that is not judged; infinity if it diverged."""
        key = repr(sorted(settings.items())) + f" seed {seed}"
        if key not in self.result["tuning"]:
            run = self.train(settings, seed)
            loss = math.inf if run.error else run.val_loss
            with self.lock:
                self.result["tuning"][key] = math.inf if loss is None or math.isnan(loss) else loss
                self.save()
        return self.result["tuning"][key]

    def tuned(self, arm):
        """Returns the settings of the arm with the alternative that is best on the seeds that are not judged."""
        own = self.arms[arm]
        tried = [{**own, **one} for one in own.get("tune", self.alternatives)]
        if len(tried) < 2:
            return {**own, **(tried[0] if tried else {})}
        self.side_by_side(lambda pair: self.loss(*pair), itertools.product(tried, TUNING_SEEDS))
        best = min(tried, key=lambda one: sum(self.loss(one, seed) for seed in TUNING_SEEDS))
        self.result["tuned"][arm] = {key: best[key] for key in best if best[key] != own.get(key)}
        return best

    def best_log2_rate(self, arm, seed):
        """Returns the vertex of the parabola through the loss at the best rate and its neighbours, in powers of 2."""
        tried = [{**self.arms[arm], **one} for one in self.alternatives]
        losses = [self.loss(one, seed) for one in tried]
        i = min(range(1, len(losses) - 1), key=lambda k: losses[k])
        low, middle, high = losses[i - 1:i + 2]
        curvature = low - 2 * middle + high
        return math.log2(tried[i]["optimizer.lr"]) + (0.5 * (low - high) / curvature if 0 < curvature < math.inf else 0)

    def save(self):
        results.save(self.name, self.result, self.options.out)

    def run(self):
        by_sweep = self.figures == ["best_log2_rate"]
        chosen = {} if by_sweep else {arm: self.tuned(arm) for arm in self.arms}

        def measure(pair):
            seed, arm = pair
            if all(seed in self.result["arms"].get(arm, {}).get(figure, {}) for figure in self.figures):
                return
            run = None if by_sweep else self.train(chosen[arm], seed)
            values = {}
            for figure in self.figures:
                if by_sweep:
                    value = self.best_log2_rate(arm, seed)
                else:
                    value = math.inf if run.error or run.val_loss is None else FIGURES[figure](run)
                values[figure] = math.inf if math.isnan(value) else value
            with self.lock:
                for figure, value in values.items():
                    self.result["arms"].setdefault(arm, {}).setdefault(figure, {})[seed] = value
                print(f"{self.name}, {arm}, seed {seed}: " + ", ".join(f"{f} {v:.5g}" for f, v in values.items()), flush=True)
                self.save()

        self.side_by_side(measure, itertools.product(self.seeds, self.arms))


def invalid_settings(ingot):
    """Returns what `ingot` says against the settings of any arm, one line each."""
    found = []
    for name, (arms, _, common, alternatives) in EXPERIMENTS.items():
        for arm, own in arms.items():
            for one in own.get("tune", alternatives) or [{}]:
                merged = {**TINY, **common, **{k: v for k, v in own.items() if k != "tune"}, **one}
                with tempfile.TemporaryDirectory() as folder:
                    config = Path(folder) / "run.toml"
                    config.write_text(runs.to_toml(merged))
                    done = subprocess.run([ingot, "train", str(config), "--print-config"], capture_output=True, text=True, check=False)
                if done.returncode != 0:
                    found.append(f"{name}, {arm}: {done.stderr.strip()}")
    return found


def seconds(text):
    """Returns the seconds of a text such as 90s, 30m or 2h."""
    return float(text[:-1]) * {"s": 1, "m": 60, "h": 3600}[text[-1]]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--budget", type=seconds, default=math.inf, help="such as 90s, 30m or 2h")
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--steps", type=int, help="of every run, for a try; takes --out")
    parser.add_argument("--out", type=Path, default=results.FOLDER)
    parser.add_argument("--data", default="builtin:cpp-headers")
    parser.add_argument("--ingot", default=str(results.ROOT / "build/release/ingot"))
    parser.add_argument("--list", action="store_true", help="print the names and end")
    options = parser.parse_args()
    if options.steps and options.out == results.FOLDER:
        parser.error("--steps makes figures that must not be judged: give --out FOLDER with it")
    unknown = set(options.names) - set(EXPERIMENTS)
    if unknown:
        parser.error(f"no experiment is called {', '.join(sorted(unknown))}; there are {', '.join(EXPERIMENTS)}")
    if options.list:
        print("\n".join(EXPERIMENTS))
        return 0
    end = time.monotonic() + options.budget
    try:
        for name in options.names or EXPERIMENTS:
            Experiment(name, options, end).run()
    except OutOfTime:
        print("the budget is over; the same command continues", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
