#!/usr/bin/env python3
"""Compares plans with runs on this machine: the time of a step and the peak of resident memory.

For each case, `ingot plan` and `ingot train` run in alternation; a step's time is the median over the run's later steps.
Prints a Markdown table. Cases with several ranks start with mpirun. Run it on a machine that does nothing else.

  python bench/plan_accuracy.py [--turns 3] [--cases NAME,...] [--json FILE]
"""
import argparse
import datetime
import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAM = ROOT / "build/release/ingot"
MPIRUN = ["mpirun", "--bind-to", "none", "--oversubscribe", "-n"]
# name: preset, ranks, steps, settings
CASES = {
    "tiny-llama": ("tiny-llama", 1, 300, {}),
    "shakespeare-char-cpu": ("shakespeare-char-cpu", 1, 150, {}),
    "demo": ("demo", 1, 40, {}),
    "books-10m": ("books-10m", 1, 12, {"train.max_time": "0s"}),
    "gpt2-124m": ("gpt2-124m", 1, 8, {"train.grad_accum": 2, "train.batch_size": 2, "model.context": 256}),
    "dp=2": ("shakespeare-char-cpu", 2, 60, {"train.grad_accum": 2, "parallel.dp": 2}),
    "fsdp=2": ("shakespeare-char-cpu", 2, 60, {"train.grad_accum": 4, "parallel.fsdp": 2}),
    "pp=2": ("shakespeare-char-cpu", 2, 60, {"train.grad_accum": 4, "parallel.pp": 2}),
    "dp=2 delay=20ms": ("shakespeare-char-cpu", 2, 60, {"train.grad_accum": 2, "parallel.dp": 2, "parallel.delay": "20ms"}),
    "fsdp=2 delay=20ms": ("shakespeare-char-cpu", 2, 40, {"train.grad_accum": 4, "parallel.fsdp": 2, "parallel.delay": "20ms"}),
    "dp=4 delay=20ms": ("shakespeare-char-cpu", 4, 40, {"train.grad_accum": 4, "parallel.dp": 4, "parallel.delay": "20ms"}),
    "dp=2 fsdp=2 delay=20ms": ("shakespeare-char-cpu", 4, 40,
                                 {"train.grad_accum": 4, "parallel.dp": 2, "parallel.fsdp": 2, "parallel.delay": "20ms"}),
}

# The runs are too short for a checkpoint beside training, so the plan must not count the copy for it.
NO_COPY = {"checkpoint.async": "false"}


def environment(folder):
    return dict(os.environ, OMP_WAIT_POLICY="passive", XDG_CACHE_HOME=str(folder / "cache"),
                OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                OMPI_MCA_btl_vader_single_copy_mechanism="none")


def flags(settings):
    return [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]


def plan(preset, settings, folder):
    line = [str(PROGRAM), "plan", preset, "--json"] + flags(dict(settings, **NO_COPY))
    done = subprocess.run(line, capture_output=True, text=True, check=True, env=environment(folder))
    return json.loads(done.stdout)


def train(preset, ranks, steps, settings, text, folder):
    """Returns the median time of a step and the largest resident memory of a process, in bytes."""
    out = folder / "run"
    subprocess.run(["rm", "-rf", str(out)], check=True)
    line = [str(PROGRAM), "train", preset, "--data", str(text), "--out", str(out)] + flags(
        dict(settings, **NO_COPY, **{"train.steps": steps, "sample.count": 0, "eval.every": 0, "head.raw_ce_every": 0}))
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    subprocess.run((MPIRUN + [str(ranks)] if ranks > 1 else []) + line, capture_output=True, check=True, env=environment(folder))
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    rows = [json.loads(row) for row in (out / "metrics.jsonl").read_text().splitlines()]
    rows = [row for row in rows if "tokens_per_s" in row]
    tokens = rows[-1]["tokens"] - rows[-2]["tokens"]
    later = rows[len(rows) // 4:]
    return tokens / statistics.median(row["tokens_per_s"] for row in later), 1024 * peak if peak > before else None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--json")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.cases.split(",") if name not in CASES]
    if unknown:
        parser.error(f"--cases: unknown {', '.join(unknown)}; the cases are {'; '.join(CASES)}")
    results = []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        text = folder / "text.txt"
        text.write_text("".join(p.read_text(encoding="utf-8") for p in sorted(ROOT.glob("docs/*.md"))) * 4, encoding="utf-8")
        for case in arguments.cases.split(","):
            preset, ranks, steps, settings = CASES[case]
            planned, real, peak, planned_peak = [], [], None, None
            for turn in range(arguments.turns):
                subprocess.run(["rm", "-rf", str(folder / "cache")], check=True)  # every plan measures
                p = plan(preset, settings, folder)
                planned.append(p["step_s"])
                planned_peak = max(rank["peak_bytes"] for rank in p["ranks"])
                s, rss = train(preset, ranks, steps, settings, text, folder)
                real.append(s)
                peak = rss if rss and turn == 0 else peak
            results.append({"case": case, "planned_s": statistics.median(planned), "real_s": statistics.median(real),
                            "ratios": [a / b for a, b in zip(planned, real)], "planned_peak": planned_peak, "real_peak": peak})
    print("| case | step, planned | step, run | planned / run, by turn | memory, planned | memory, run |")
    print("|---|---|---|---|---|---|")
    for r in results:
        ratios = ", ".join(f"{ratio:.2f}" for ratio in r["ratios"])
        memory = f"{r['planned_peak'] / 1e6:.0f} MB | " + (f"{r['real_peak'] / 1e6:.0f} MB" if r["real_peak"] else "below an earlier case's")
        print(f"| {r['case']} | {1e3 * r['planned_s']:.1f} ms | {1e3 * r['real_s']:.1f} ms | {ratios} | {memory} |")
    print(f"\n`python bench/plan_accuracy.py`, {datetime.date.today()}.")
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps(results, indent=1), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
