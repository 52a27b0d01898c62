#!/usr/bin/env python3
"""Runs every script of bench/chaos after the other, and says which of them failed or was skipped.

  bench/chaos/run.py [--short] [--pty] [--seed N] [--only kills,ranks] [--program build/release/ingot]

--short takes about two minutes; the full counts take hours. The soak is only run in full (bench/chaos/soak.py --short is a soak
of three minutes). All options except --only are passed on to the scripts.
"""
import argparse
import pathlib
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
# The number of faults of the short form: about two minutes on two cores for all.
SCRIPTS = {"bad_inputs": 60, "bit_flips": 30, "kills": 20, "file_calls": 80, "power_cuts": 1, "ranks": 4, "signals": 8, "hosts": 1,
           "haul": 100_000}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--only", default=",".join([*SCRIPTS, "soak"]))
    parser.add_argument("--short", action="store_true")
    arguments, others = parser.parse_known_args()
    failed, start = [], time.monotonic()
    for name in arguments.only.split(","):
        if name == "soak" and arguments.short:
            continue
        words = [sys.executable, str(HERE / f"{name}.py"), *others]
        if arguments.short:
            words += ["--short", "--count", str(SCRIPTS[name])]
        if subprocess.run(words, check=False).returncode:
            failed.append(name)
    print(f"run.py: {f'FAILED: {chr(44).join(failed)}' if failed else 'all held'}, {time.monotonic() - start:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
