"""Functions that the scripts of this folder share: training runs of `ingot`, and sections of docs/reproductions.md.

A script states a published claim, trains the variants that the claim compares, and writes its section: the claim,
the table, the verdict (holds, holds in part, refuted, not told apart), the command, machine and date. Variants are
compared seed by seed, by the 95 % t-interval of the difference. The scripts need only Python's
standard library and build/release/ingot (tools/build.sh release ingot).

  options of every script
    --data PATH    text to train on; without it the C++ headers of this machine's compiler
    --seeds A,B,C  default 1337,1,2
    --steps N      overrides the script's own number, for a quick try; such a run writes no section
    --full         trains at the size of GPT-2 124M, 0.4B tokens per run: for a GPU
"""

import argparse
import datetime
import json
import math
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs" / "reproductions.md"
VERDICTS = ("holds", "holds in part", "refuted", "not told apart")
# 97.5 % quantiles of Student's t for 1, 2, ... degrees of freedom; the last also serves for more.
T_975 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)

# The model that the scripts train unless they say otherwise: a LLaMA of 1.3M parameters with a 4k BPE.
SMALL = {
    "model.layers": 4, "model.heads": 4, "model.width": 128, "model.context": 128, "model.norm": "rmsnorm",
    "model.positions": "rope", "model.mlp": "swiglu", "model.tied": "false", "data.tokenizer": "bpe",
    "data.tokenizer_vocab": 4096, "train.batch_size": 16, "train.steps": 400, "train.log_every": 1,
    "optimizer.lr": 2e-3, "schedule.warmup_steps": 20, "precision.compute": "bf16", "eval.every": 0,
    "eval.max_tokens": 65536, "sample.count": 0,
}

FULL = {
    "model.layers": 12, "model.heads": 12, "model.width": 768, "model.context": 1024, "data.tokenizer_vocab": 32768,
    "train.batch_size": 32, "train.grad_accum": 4, "train.steps": 3000, "schedule.warmup_steps": 100,
    "optimizer.lr": 6e-4, "train.log_every": 10,
}


def arguments(description):
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="builtin:cpp-headers")
    parser.add_argument("--seeds", default="1337,1,2", type=lambda text: [int(s) for s in text.split(",")])
    parser.add_argument("--steps", type=int)
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--ingot", default=str(ROOT / "build" / "release" / "ingot"))
    return parser.parse_args()


class Result:
    """One finished run: run.json, and the lines of metrics.jsonl and params.jsonl."""

    def __init__(self, folder):
        self.summary = json.loads((folder / "run.json").read_text())
        self.metrics = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        params = folder / "params.jsonl"
        self.params = [json.loads(line) for line in params.read_text().splitlines()] if params.exists() else []

    error = ""  # the last line of stderr of a failed run

    @property
    def val_loss(self):
        return self.summary["val_loss"]

    def series(self, key):
        return [line[key] for line in self.metrics if line.get(key) is not None]


def train(args, settings, base=SMALL, may_fail=False):
    """Trains base, overridden by settings, and returns the Result. If the run fails, its output ends the script or,
    with may_fail, goes to the error of the Result."""
    merged = {**base, **(FULL if args.full else {}), **settings}
    if args.steps:
        merged["train.steps"] = args.steps
    folder = Path(tempfile.mkdtemp(prefix="reproduce-"))
    config = folder / "run.toml"
    config.write_text(to_toml(merged))
    command = [args.ingot, "train", str(config), "--data", args.data, "--out", str(folder / "run")]
    done = subprocess.run(command, capture_output=True, text=True)
    has_begun = (folder / "run" / "run.json").exists()
    if done.returncode != 0 and not (may_fail and has_begun):
        sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    result = Result(folder / "run")
    if done.returncode != 0:
        result.error = done.stderr.strip().splitlines()[-1]
    shutil.rmtree(folder)
    return result


def to_toml(settings):
    """Converts {"section.key": value} to TOML; {"optimizer.group": [{...}, {...}]} becomes an array of tables."""
    sections, tables = {}, ""
    for name, value in settings.items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            for entry in value:
                tables += f"[[{name}]]\n" + "".join(f"{k} = {toml_value(v)}\n" for k, v in entry.items())
            continue
        section, key = name.rsplit(".", 1)
        sections.setdefault(section, []).append(f"{key} = {toml_value(value)}")
    return "".join(f"[{name}]\n" + "\n".join(lines) + "\n" for name, lines in sections.items()) + tables


def toml_value(value):
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str) and value not in ("true", "false"):
        return json.dumps(value)
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(toml_value(v) for v in value) + "]"
    return str(value)


def over_seeds(args, settings, base=SMALL, report=print):
    """Trains once per seed and returns the Results."""
    results = []
    for seed in args.seeds:
        results.append(train(args, {**settings, "train.seed": seed}, base))
        report(f"  seed {seed}: validation loss {results[-1].val_loss:.4f}", flush=True)
    return results


def mean(values):
    return statistics.fmean(values)


def spread(values):
    """Returns the sample standard deviation; 0 for a single value."""
    return statistics.stdev(values) if len(values) > 1 else 0.0


def mean_and_spread(values, digits=4):
    return f"{mean(values):.{digits}f} ± {spread(values):.{digits}f}"


def table(header, rows):
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    lines += ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def machine():
    model = platform.processor() or platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines() if os.path.exists("/proc/cpuinfo") else []:
        if line.startswith("model name"):
            model = line.split(":", 1)[1].strip()
            break
    return f"{len(os.sched_getaffinity(0))} cores of {model}"


def write_section(args, title, claim, body, verdict, meaning):
    """Writes the section to docs/reproductions.md, replacing an earlier one of the same title, and prints it."""
    assert verdict in VERDICTS, verdict
    command = " ".join(["python", os.path.relpath(sys.argv[0], ROOT)] + sys.argv[1:])
    section = (f"## {title}\n\n*Claim:* {claim}\n\n{body}\n\n**Verdict: {verdict}.** {meaning}\n\n"
               f"`{command}`, {datetime.date.today()}, {machine()}.\n")
    print("\n" + section)
    if args.steps:
        print("--steps was given: docs/reproductions.md is left as it is")
        return
    text = DOCUMENT.read_text() if DOCUMENT.exists() else "# Reproductions\n"
    sections = re.split(r"(?m)^(?=## )", text)
    kept = [s for s in sections if not s.startswith(f"## {title}\n")]
    place = next((i for i, s in enumerate(sections) if s.startswith(f"## {title}\n")), len(kept))
    kept.insert(place, section)
    DOCUMENT.write_text("\n".join(s.rstrip("\n") + "\n" for s in kept))


def difference(a, b):
    """Returns the mean of b - a over equal seeds, and half the width of its 95 % interval (infinite for one seed)."""
    pairs = [y - x for x, y in zip(a, b)]
    if len(pairs) < 2:
        return mean(pairs), math.inf
    t = T_975[min(len(pairs) - 1, len(T_975)) - 1]
    return mean(pairs), t * spread(pairs) / math.sqrt(len(pairs))


def told_apart(a, b):
    """Returns "lower" or "higher" if the whole interval of b - a lies below or above 0, else "not told apart"."""
    change, half = difference(a, b)
    return "lower" if change + half < 0 else "higher" if change - half > 0 else "not told apart"


def is_as_low(a, b, margin=0.01):
    """Returns True if the interval of b - a excludes that b exceeds a by more than margin times the mean of a."""
    change, half = difference(a, b)
    return change + half <= margin * mean(a)
