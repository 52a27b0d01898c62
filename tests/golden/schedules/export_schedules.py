#!/usr/bin/env python3
"""Writes schedules.txt beside it: the multipliers that the learning-rate schedulers of torch and transformers
give at every step of a short run, one line per scheduler: NAME VALUE VALUE ...

  python tests/golden/schedules/export_schedules.py

Needs: pip install -r tools/requirements-oracle.txt
"""
from pathlib import Path

import torch
from torch.optim import lr_scheduler as lrs
from transformers import (get_constant_schedule_with_warmup, get_cosine_schedule_with_warmup,
                          get_cosine_with_min_lr_schedule_with_warmup, get_linear_schedule_with_warmup,
                          get_wsd_schedule)

STEPS, WARMUP, DECAY = 60, 10, 15


def wsd(warmup, decay_type, ratio):
    return lambda o: get_wsd_schedule(o, num_warmup_steps=warmup, num_decay_steps=DECAY, num_training_steps=STEPS,
                                      decay_type=decay_type, min_lr_ratio=ratio)


def exponential_wsd(o):
    stable = STEPS - DECAY
    constant = lrs.ConstantLR(o, factor=1.0, total_iters=stable)
    return lrs.SequentialLR(o, [constant, lrs.ExponentialLR(o, gamma=0.05**(1 / DECAY))], milestones=[stable])


SCHEDULERS = {
    "hf_constant": lambda o: get_constant_schedule_with_warmup(o, WARMUP),
    "hf_linear": lambda o: get_linear_schedule_with_warmup(o, WARMUP, STEPS),
    "hf_cosine": lambda o: get_cosine_schedule_with_warmup(o, WARMUP, STEPS),
    "hf_cosine_min": lambda o: get_cosine_with_min_lr_schedule_with_warmup(o, WARMUP, STEPS, min_lr_rate=0.1),
    "hf_wsd_linear": wsd(WARMUP, "linear", 0.0),
    "hf_wsd_linear_floor": wsd(0, "linear", 0.1),
    "hf_wsd_cosine": wsd(WARMUP, "cosine", 0.0),
    "hf_wsd_1-sqrt": wsd(WARMUP, "1-sqrt", 0.0),
    "hf_wsd_1-sqrt_floor": wsd(0, "1-sqrt", 0.2),
    "torch_cosine": lambda o: lrs.CosineAnnealingLR(o, T_max=STEPS, eta_min=0.1),
    "torch_linear": lambda o: lrs.LinearLR(o, start_factor=1.0, end_factor=0.1, total_iters=STEPS),
    "torch_exponential_wsd": exponential_wsd,
}


def main():
    lines = []
    for name, make in SCHEDULERS.items():
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
        scheduler = make(optimizer)
        values = []
        for _ in range(STEPS):
            values.append(float(optimizer.param_groups[0]["lr"]))
            optimizer.step()
            scheduler.step()
        lines.append(" ".join([name, *map(repr, values)]))
    (Path(__file__).parent / "schedules.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
