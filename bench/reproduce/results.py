"""Reads and writes bench/reproduce/results/NAME.json: the figures of one experiment, and where they come from.

  {"command": ..., "commit": ..., "machine": ..., "date": ..., "sources": {folder: hash},
   "arms": {ARM: {FIGURE: {SEED: number}}}}

A figure that is no sample has "exact" in place of its seeds, and one that its program measured in rounds has "interval":
[value, low, high]. A run that diverged has the figure Infinity. "sources" has a hash of the sources of the CPU in every
folder that the figures depend on, without comments and empty lines; results are stale once one of them is another.
"""

import argparse
import datetime
import hashlib
import io
import json
import os
import platform
import re
import subprocess
import sys
import tarfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "bench/reproduce/results"
KERNELS = ("ingot/data", "ingot/nn", "ingot/ops", "ingot/optim", "ingot/train")


def measured_options(description, **defaults):
    """Returns the options of a script that measures in rounds; defaults: further numbers, such as steps=20."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in defaults.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--tiny", action="store_true", help="small models, to try the script")
    parser.add_argument("--out", type=Path, default=FOLDER)
    parser.add_argument("--ingot", default=str(ROOT / "build/release/ingot"))
    options = parser.parse_args()
    if options.tiny and options.out == FOLDER:
        parser.error("--tiny makes figures that must not be judged: give --out FOLDER with it")
    return options


def git(*words):
    done = subprocess.run(["git", "-C", ROOT, *words], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


# Literals are matched first, because a string may contain the signs of a comment.
LITERAL_OR_COMMENT = re.compile(r'(R"(\w*)\(.*?\)\2"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\')|//[^\n]*|/\*.*?\*/', re.DOTALL)


def code_of(text):
    """Returns C++ without its comments and empty lines."""
    lines = LITERAL_OR_COMMENT.sub(lambda match: match[1] or " ", text).splitlines()
    return "\n".join(line.rstrip() for line in lines if line.strip())


def sources(folders):
    """Returns a hash of the committed code of each folder, without that of devices; {} outside of a repository."""
    found = {}
    for folder in folders:
        done = subprocess.run(["git", "-C", ROOT, "archive", "HEAD", folder], capture_output=True, check=False)
        if done.returncode != 0:
            continue
        digest = hashlib.sha256()
        with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
            for file in sorted((one for one in archive if one.isfile()), key=lambda one: one.name):
                if not file.name.endswith((".cu", ".cuh")):
                    text = archive.extractfile(file).read().decode(errors="replace")
                    digest.update(f"{file.name}\n{code_of(text) if file.name.endswith(('.h', '.cpp')) else text}\n".encode())
        found[folder] = digest.hexdigest()[:16]
    return found


def is_stale(result):
    now = sources(result["sources"])
    return bool(now) and now != result["sources"]


def machine():
    model = platform.processor() or platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines() if os.path.exists("/proc/cpuinfo") else []:
        if line.startswith("model name"):
            model = line.split(":", 1)[1].strip()
            break
    return f"{len(os.sched_getaffinity(0))} cores of {model}"


def provenance(folders=KERNELS):
    command = " ".join(["python3", os.path.relpath(sys.argv[0], ROOT)])
    return {"command": command, "commit": git("rev-parse", "--short=10", "HEAD"), "machine": machine(),
            "date": str(datetime.date.today()), "sources": sources(folders)}


def path(name, folder=FOLDER):
    return Path(folder) / f"{name}.json"


def load(name, folder=FOLDER):
    """Returns the results of an experiment, or None."""
    file = path(name, folder)
    return json.loads(file.read_text()) if file.exists() else None


def save(name, result, folder=FOLDER):
    """Replaces the file at once, so that an interrupted script leaves the old one or the new one."""
    file = path(name, folder)
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_suffix(".draft")
    draft.write_text(json.dumps(result, indent=1) + "\n")
    os.replace(draft, file)
