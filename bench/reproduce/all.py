#!/usr/bin/env python3
"""Measures what docs/claims.md lacks, in a given time, and writes the page.

  bench/reproduce/all.py --budget 2h      experiments without results first, then stale ones, the shortest first
  bench/reproduce/all.py --miniature      every script with runs of a few steps, into a temporary folder

Every script writes its results as it goes, so the command continues where it stopped when it is given again. The miniature
checks the settings of all arms, and takes less than three minutes on two free cores; its page is judged from its own results, and then the real page is compared with the real
results. The exit code is 1 if a script fails or the page is not what its results say.
"""

import argparse
import math
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path

import claims
import experiments
import results

HERE = Path(__file__).resolve().parent
# Seconds of the scripts on two cores; experiments are behind them in the order of their runs.
SCRIPTS = {"plans": 5, "messages": 65, "loader": 1400, "exact_tests": 60, "checkpointing": 170, "times": 300, "twins": 900}
MINIATURE = {"plans": [], "messages": ["--rounds", "6", "--tiny"], "loader": ["--rounds", "6", "--tiny"],
             "checkpointing": ["--rounds", "6", "--tiny"], "times": ["--rounds", "6", "--steps", "1", "--tiny"],
             "twins": ["--seeds", "2", "--tokens", "72k", "--recipes", "1"]}
# One experiment of each kind: fixed arms, arms that choose a rate, and arms whose figure is their best rate.
MINIATURE_EXPERIMENTS = ("head_scales", "norm_before_spike", "beta2", "rate_of_batch")


def runs_of(name):
    """Returns about how many runs an experiment takes."""
    arms, figures, _, alternatives = experiments.EXPERIMENTS[name]
    if figures == ["best_log2_rate"]:
        return len(arms) * len(alternatives) * 8
    tried = [len(arm.get("tune", alternatives)) for arm in arms.values()]
    return sum(8 + (2 * n if n > 1 else 0) for n in tried)


def command_of(name):
    script = [sys.executable, str(HERE / claims.PROGRAMS.get(name, "experiments.py"))]
    return script if name in claims.PROGRAMS else [*script, name]


def finished(name, folder=results.FOLDER):
    """Returns whether the results are not stale, and have every arm on eight seeds or, of a script, all that claims take."""
    found = results.load(name, folder)
    if found is None or results.is_stale(found):
        return False
    if name not in experiments.EXPERIMENTS:
        measured = claims.Measured(folder)
        rows = (claims.Row(claim, measured) for claim in tomllib.loads(claims.CLAIMS.read_text())["claim"])
        return not any(claims.command_of(name) in row.missing for row in rows)
    arms, figures = experiments.EXPERIMENTS[name][:2]
    return all(len(found["arms"].get(arm, {}).get(figure, {})) >= 8 for arm in arms for figure in figures)


def write_page(*options):
    return subprocess.run([sys.executable, str(HERE / "claims.py"), *options], check=False).returncode


def miniature(options):
    invalid = experiments.invalid_settings(options.ingot)
    if invalid:
        print("\n".join(invalid), file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder:
        common = ["--out", folder, "--ingot", options.ingot]
        commands = [[*command_of(name), *own, *common] for name, own in MINIATURE.items()]
        commands.append([sys.executable, str(HERE / "experiments.py"), *MINIATURE_EXPERIMENTS, "--seeds", "2", "--steps", "24", *common])
        for command in commands:
            if subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode != 0:
                print(f"{' '.join(command)} failed", file=sys.stderr)
                return 1
        page = ["--results", folder, "--least-seeds", "2", "--page", f"{folder}/claims.md"]
        if write_page(*page) or write_page("--check", *page):
            return 1
        known = tomllib.loads(claims.CLAIMS.read_text())["claim"]
        made = {*MINIATURE, "head", *MINIATURE_EXPERIMENTS}
        rows = [claims.Row(claim, claims.Measured(folder, least_seeds=2)) for claim in known
                if "parts" in claim and all(part["from"] in made for part in claim["parts"])]
        missing = [row.claim["id"] for row in rows if row.verdict == claims.NOT_MEASURED]
        if missing:
            print(f"no figures for {', '.join(missing)}", file=sys.stderr)
            return 1
    return write_page("--check")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budget", type=experiments.seconds, default=math.inf, help="such as 90s, 30m or 2h")
    parser.add_argument("--miniature", action="store_true")
    parser.add_argument("--ingot", default=str(results.ROOT / "build/release/ingot"))
    options = parser.parse_args()
    if options.miniature:
        return miniature(options)
    end = time.monotonic() + options.budget
    names = list(dict.fromkeys(name if name != "head" else "times" for name in claims.names_of(tomllib.loads(claims.CLAIMS.read_text())["claim"])))
    names = [name for name in names if not finished(name)]
    for name in sorted(names, key=lambda one: (results.load(one) is not None, SCRIPTS.get(one) or 3 * runs_of(one))):
        left = end - time.monotonic()
        if left < SCRIPTS.get(name, 0):
            print(f"{name}: not begun, because it cannot stop within the budget", flush=True)
            continue
        if left <= 0:
            break
        print(f"{name}, {left:.0f} s left" if math.isfinite(left) else name, flush=True)
        budget = [] if name in SCRIPTS else ["--budget", f"{left:.0f}s"] if math.isfinite(left) else []
        program = [] if name == "exact_tests" else ["--ingot", options.ingot]
        if subprocess.run([*command_of(name), *budget, *program], check=False).returncode != 0:
            return 1
    return write_page()


if __name__ == "__main__":
    sys.exit(main())
