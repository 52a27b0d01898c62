#!/usr/bin/env python3
"""Writes tests/golden/optim/loss_scaler.json: how torch.amp.GradScaler moves its scale.

  python tools/export_loss_scaler_golden.py [--check]

Each record has the initial scale, the growth interval, which steps overflowed, and the scale after each step.
--check recomputes everything and compares with the file. The script is deterministic.

Needs: pip install -r tools/requirements-oracle.txt
"""

import argparse
import json
import random
import sys
from pathlib import Path

import torch

FILE = Path(__file__).resolve().parent.parent / "tests/golden/optim/loss_scaler.json"
# (initial scale, growth interval, steps, probability of an overflow); the third reaches the limit of float32
RUNS = [(2.0**16, 3, 60, 0.2), (2.0**16, 5, 80, 0.1), (2.0**120, 1, 20, 0.0), (1000.0, 2, 40, 0.4)]


def trajectory(init, interval, overflows):
    scaler = torch.amp.GradScaler("cpu", init_scale=init, growth_factor=2.0, backoff_factor=0.5,
                                  growth_interval=interval)
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weight], lr=0.0)
    scales = []
    for overflow in overflows:
        scaler.scale(torch.zeros(1))  # creates the tensor of the scale
        weight.grad = torch.tensor([float("inf") if overflow else 1.0])
        scaler.step(optimizer)
        scaler.update()
        scales.append(scaler.get_scale())
    return scales


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare with the file, write nothing")
    args = parser.parse_args()
    chance = random.Random(16)
    records = []
    for init, interval, steps, probability in RUNS:
        overflows = [chance.random() < probability for _ in range(steps)]
        records.append({"init": init, "growth_interval": interval, "overflows": overflows,
                        "scales": trajectory(init, interval, overflows)})
    text = "[\n" + ",\n".join(json.dumps(record) for record in records) + "\n]\n"
    if not args.check:
        FILE.write_text(text)
        print(f"wrote {FILE}")
    elif FILE.read_text() != text:
        sys.exit(f"export_loss_scaler_golden: {FILE} is not what torch {torch.__version__} gives")


if __name__ == "__main__":
    main()
