#!/usr/bin/env python3
"""Shows that a change does not alter an operation, a message or an arena of a training step.

    tools/build.sh release step_text && tools/same_steps.py --out before      # before the change
    tools/build.sh release step_text && tools/same_steps.py --against before  # after it

Records a step of the runs of same_bits.py, of each of its layouts on a device too, and of large meshes, as `ingot plan` does: on
addresses without memory, so no rank and no GPU is needed. Each run gives a text with the bytes of its arenas, and
its operations and messages in order (tests/plan/step_text.cpp). With --against, prints what differs and exits with 1; arenas are
compared by their sum too, which may only shrink. --only PATTERN selects the runs whose name matches.
"""
import argparse
import concurrent.futures
import difflib
import fnmatch
import os
import pathlib
import re
import subprocess
import sys

import same_bits

# Meshes of many ranks, in which ranks with the same work are recorded once.
LARGE = {
    "gpt2-124m dp8": ("gpt2-124m", ["parallel.dp=8"]),
    "gpt2-124m fsdp8 fp8": ("gpt2-124m", ["parallel.fsdp=8", "train.device=cuda", "precision.compute=bf16",
                                         "precision.fp8=tensorwise"]),
    "llama-1b fsdp64": ("llama-1b-h100", ["parallel.fsdp=64"]),
    "llama-1b dp4 fsdp2 tp2 pp4": ("llama-1b-h100", ["parallel.dp=4", "parallel.fsdp=2", "parallel.tp=2", "parallel.pp=4",
                                                   "parallel.schedule=gpipe", "train.grad_accum=8", "train.graph=false"]),
    "llama-1b tp16 shared kv": ("llama-1b-h100", ["parallel.tp=16"]),
    "gpt3-175b dp8 tp8 pp16": ("gpt3-175b", ["parallel.dp=8", "parallel.tp=8", "parallel.pp=16", "train.grad_accum=16",
                                            "train.device=cuda"]),
    "hybrid-124m dp8": ("hybrid-124m", ["parallel.dp=8", "train.device=cuda"]),
}


def cases():
    """Yields (name, preset, settings) of every run."""
    for case in same_bits.cases():
        yield case.name, case.preset, case.settings()
        if case.ranks() > 1 and not case.on_device:
            yield f"on a device: {case.name}", case.preset, case.settings() + ["train.device=cuda"]
    for name, (preset, settings) in LARGE.items():
        yield name, preset, settings


def record(program: str, preset: str, settings: list[str]) -> str:
    done = subprocess.run([program, preset, *settings], capture_output=True, text=True, check=False,
                          env=dict(os.environ, OMP_NUM_THREADS="1"))
    return done.stdout + done.stderr


def arena_sums(text: str) -> list[int]:
    """Returns the bytes of activations and scratch, for each class of ranks."""
    return [sum(int(size) for size in re.findall(r"^  (?:activations|scratch|slots) (\d+)$", part, re.MULTILINE))
            for part in re.split(r"^memory of ", text, flags=re.MULTILINE)[1:]]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=str(same_bits.ROOT / "build/release/tests/step_text"))
    parser.add_argument("--only", default="", help="runs whose name has this pattern")
    parser.add_argument("--out", type=pathlib.Path, help="write a text per run into this folder")
    parser.add_argument("--against", type=pathlib.Path, help="compare with the texts of this folder")
    parser.add_argument("--lines", type=int, default=12, help="lines of each difference that are printed")
    options = parser.parse_args()
    chosen = [case for case in cases() if fnmatch.fnmatch(case[0], f"*{options.only}*")]
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
    refused = differences = grown = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for (name, _, _), text in zip(chosen, pool.map(lambda case: record(options.program, *case[1:]), chosen)):
            refused += text.startswith("ingot: ")
            file = name.replace(" ", "-").replace(":", "") + ".txt"
            if options.out:
                (options.out / file).write_text(text)
            if not options.against:
                continue
            before = (options.against / file).read_text() if (options.against / file).exists() else ""
            if before == text:
                continue
            differences += 1
            print(f"DIFFERS {name}")
            old, new = arena_sums(before), arena_sums(text)
            if len(old) != len(new) or any(b > a for a, b in zip(old, new)):
                grown += 1
                print(f"  activations and scratch: {old} bytes before, {new} now")
            lines = list(difflib.unified_diff(before.splitlines(), text.splitlines(), "before", "now", lineterm="", n=1))
            print(*(f"  {line}" for line in lines[:options.lines]), sep="\n")
            if len(lines) > options.lines:
                print(f"  ... {len(lines) - options.lines} lines more")
    print(f"same_steps: {len(chosen)} runs, {refused} refused" +
          (f", {differences} differ from {options.against}, {grown} take more memory" if options.against else ""))
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
