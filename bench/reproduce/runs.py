"""Functions that the scripts of this folder share: training runs of `ingot`, and sections of docs/reproductions.md.

The scripts need only Python's standard library and build/release/ingot (tools/build.sh release ingot). Two of them,
scaling_rules.py and lr_range.py, test what Ingot itself claims, and write sections; experiments.py and the others write results.

  options of the two
    --data PATH    text to train on; without it the C++ headers of this machine's compiler
    --seeds A,B,C
    --steps N      overrides the script's own number, for a quick try; such a run writes no section
"""

import argparse
import datetime
import json
import math
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import results

MPIRUN = ["mpirun", "--bind-to", "none"]
# What lets mpirun start more ranks than there are cores, and as root in a container; Open MPI 4 and 5.
MPI_ENVIRONMENT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1",
                   "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe"}
DOCUMENT = results.ROOT / "docs" / "reproductions.md"
VERDICTS = ("holds", "in part", "refuted", "not told apart")


def arguments(description):
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="builtin:cpp-headers")
    parser.add_argument("--seeds", default="1337,1,2", type=lambda text: [int(s) for s in text.split(",")])
    parser.add_argument("--steps", type=int)
    parser.add_argument("--ingot", default=str(results.ROOT / "build" / "release" / "ingot"))
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


def train(args, settings, base, may_fail=False):
    """Trains base, overridden by settings, and returns the Result. If the run fails, its output ends the script or,
    with may_fail, goes to the error of the Result."""
    merged = {**base, **settings}
    if args.steps:
        merged["train.steps"] = args.steps
    folder = Path(tempfile.mkdtemp(prefix="reproduce-"))
    config = folder / "run.toml"
    config.write_text(to_toml(merged))
    ranks = math.prod(merged.get(f"parallel.{axis}", 1) for axis in ("dp", "fsdp", "tp", "pp"))
    launch = ["launch", "--restarts", "0", "--mpirun", " ".join(MPIRUN), "--"] if ranks > 1 else []
    command = [args.ingot, *launch, "train", str(config), "--data", args.data, "--out", str(folder / "run")]
    done = subprocess.run(command, env={**os.environ, **MPI_ENVIRONMENT}, capture_output=True, text=True)
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


def mean(values):
    return statistics.fmean(values)


def table(header, rows):
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    lines += ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def write_section(args, title, claim, body, verdict, meaning):
    """Writes the section to docs/reproductions.md, replacing an earlier one of the same title, and prints it."""
    assert verdict in VERDICTS, verdict
    command = " ".join(["python", os.path.relpath(sys.argv[0], results.ROOT)] + sys.argv[1:])
    section = (f"## {title}\n\n*Claim:* {claim}\n\n{body}\n\n**Verdict: {verdict}.** {meaning}\n\n"
               f"`{command}`, {datetime.date.today()}, {results.machine()}.\n")
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
