#!/usr/bin/env python3
"""Runs the tests that decide claims of claims.toml, and writes which of them pass to results/exact_tests.json."""

import argparse
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import claims
import results


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=results.FOLDER)
    parser.add_argument("--build", default=str(results.ROOT / "build/release"))
    options = parser.parse_args()
    result = results.provenance((*results.KERNELS, "ingot/parallel", "ingot/run", "ingot/config",
                                 *(f"tests/{folder}" for folder in ("config", "parallel", "plan", "regress", "run", "train"))))
    result["arms"] = {}
    tests = [test for claim in tomllib.loads(claims.CLAIMS.read_text())["claim"] for test in claim.get("test", [])]
    for test in dict.fromkeys(tests):
        command = ["ctest", "--test-dir", options.build, "--no-tests=error", "-R", f"^{re.escape(test)}$"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if "No tests were found" in done.stdout + done.stderr or "***Skipped" in done.stdout:
            sys.exit(f"{test} did not run; build it with tools/build.sh release:\n{done.stdout[-1500:]}")
        result["arms"][test] = {"passed": {"exact": int(done.returncode == 0)}}
        print(f"{test}: {'passes' if done.returncode == 0 else 'fails'}", flush=True)
    results.save("exact_tests", result, options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
