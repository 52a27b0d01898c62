#!/usr/bin/env python3
"""Writes tests/golden/optim/: ten-step trajectories of PyTorch's optimizers on given weights and gradients.

  python tools/export_optimizer_golden.py [--out tests/golden/optim] [--check]

trajectories.safetensors   initial.SHAPE, gradients.SHAPE (10, ...), and NAME.SHAPE (10, ...): the weights after
                           each step; SHAPE is wide (6, 10), tall (10, 6) or vector (7)
trajectories.json          learning rates; for each NAME its options and `rounding`: the largest difference
                           between the run in float32 and the same in double precision

Every run of torch.optim is made twice, in float32 (stored) and in double, so a test knows how much rounding may
change. torch.optim.Muon iterates in bf16. There are also Muon runs by the formula in this file in double (stored as
float32), with the quintic and the Polar Express coefficients, and with NorMuon and cautious decay. Their `rounding`
is that of the same formula in float32; that of torch's bf16 run is its distance to the double one.
--check recomputes everything and compares with the files. The script is deterministic: one thread, fixed seeds.

Needs: pip install -r tools/requirements-oracle.txt
"""

import argparse
import json
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

ROOT = Path(__file__).resolve().parent.parent
STEPS = 10
SHAPES = {"wide": (6, 10), "tall": (10, 6), "vector": (7,)}
LR_MULTIPLIERS = [0.25, 0.5, 1.0, 1.0, 1.0, 0.9, 0.8, 0.6, 0.4, 0.2]

# NAME: (torch.optim class, its options, the lr of multiplier 1)
TORCH = {
    "sgd": (torch.optim.SGD, {"weight_decay": 0.05}, 0.1),
    "momentum": (torch.optim.SGD, {"momentum": 0.9, "weight_decay": 0.05}, 0.05),
    "nesterov": (torch.optim.SGD, {"momentum": 0.9, "nesterov": True, "weight_decay": 0.05}, 0.05),
    "adam": (torch.optim.Adam, {"betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.05}, 0.02),
    "adamw": (torch.optim.AdamW, {"betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.1}, 0.02),
    "adafactor": (torch.optim.Adafactor, {"weight_decay": 0.1, "eps": (2**-23, 1e-3)}, 0.3),
    "adafactor_unclipped": (torch.optim.Adafactor, {"weight_decay": 0.1, "d": 100.0, "eps": (2**-23, 1e-3)}, 0.3),
    "muon_torch": (torch.optim.Muon, {"momentum": 0.95, "weight_decay": 0.1}, 0.02),
}
# NAME: (coefficients, NorMuon's beta2 or None, cautious decay); momentum 0.95, Nesterov, weight decay 0.1, lr 0.02
QUINTIC = [(3.4445, -4.7750, 2.0315)] * 5
POLAR_EXPRESS = [(8.156554524902461, -22.48329292557795, 15.878769915207462),
                 (4.042929935166739, -2.808917465908714, 0.5000178451051316),
                 (3.8916678022926607, -2.772484153217685, 0.5060648178503393),
                 (3.285753657755655, -2.3681294933425376, 0.46449024233003106),
                 (2.3465413258596377, -1.7098278382687081, 0.42323551169305323)]
MUON = {"muon": (QUINTIC, None, False), "muon_polar": (POLAR_EXPRESS, None, False),
        "muon_normuon": (QUINTIC, 0.9, True)}
MUON_LR, MUON_MOMENTUM, MUON_DECAY = 0.02, 0.95, 0.1


def draw():
    """Draws weights N(0, 1), and gradients N(0, 1) times a factor per row and step from 0.01 to 1, with exact zeros in
    one place, so that second moments differ and one element gets no gradient."""
    generator = torch.Generator().manual_seed(20)
    initial, gradients = {}, {}
    for name, shape in SHAPES.items():
        initial[name] = torch.randn(shape, generator=generator)
        size = torch.logspace(-2, 0, shape[0])[torch.randperm(shape[0], generator=generator)]
        steps = torch.randn((STEPS, *shape), generator=generator) * size.view(-1, *[1] * (len(shape) - 1))
        steps += 0.3 * torch.randn((1, *shape), generator=generator) * size.view(-1, *[1] * (len(shape) - 1))
        steps.view(STEPS, -1)[:, 0] = 0.0
        gradients[name] = steps
    return initial, gradients


def run_torch(name, initial, gradients, dtype):
    cls, options, lr = TORCH[name]
    p = torch.nn.Parameter(initial.to(dtype, copy=True))
    optimizer = cls([p], lr=lr, **options)
    out = []
    for step in range(STEPS):
        optimizer.param_groups[0]["lr"] = lr * LR_MULTIPLIERS[step]
        p.grad = gradients[step].to(dtype)
        optimizer.step()
        out.append(p.detach().clone())
    return torch.stack(out)


def run_muon(name, initial, gradients, dtype):
    coefficients, beta2, is_cautious = MUON[name]
    w, momentum, second = initial.to(dtype), torch.zeros(initial.shape, dtype=dtype), None
    rows, columns = w.shape
    out = []
    for step in range(STEPS):
        g = gradients[step].to(dtype)
        momentum = MUON_MOMENTUM * momentum + (1 - MUON_MOMENTUM) * g
        u = (1 - MUON_MOMENTUM) * g + MUON_MOMENTUM * momentum
        x = u / (u.norm() + 1e-7) if coefficients is QUINTIC else u / (1.02 * u.norm() + 1e-6)
        for a, b, c in coefficients:
            gram = x @ x.T
            x = a * x + (b * gram + c * gram @ gram) @ x
        if beta2 is not None:
            dim = 1 if rows >= columns else 0
            mean = x.square().mean(dim=dim, keepdim=True)
            second = (1 - beta2) * mean if second is None else beta2 * second + (1 - beta2) * mean
            scaled = x / second.clamp(min=1e-10).sqrt()
            x = scaled * (x.norm() / scaled.norm())
        lr = MUON_LR * LR_MULTIPLIERS[step]
        mask = (x * w >= 0).to(dtype) if is_cautious else 1.0
        w = w - lr * MUON_DECAY * mask * w - lr * max(1.0, rows / columns) ** 0.5 * x
        out.append(w)
    return torch.stack(out)


def compute():
    initial, gradients = draw()
    tensors = {f"initial.{n}": t for n, t in initial.items()} | {f"gradients.{n}": t for n, t in gradients.items()}
    records = {}
    matrices = ["wide", "tall"]
    for name, (coefficients, beta2, is_cautious) in MUON.items():
        worst = 0.0
        for shape in matrices:
            exact = run_muon(name, initial[shape], gradients[shape], torch.float64)
            single = run_muon(name, initial[shape], gradients[shape], torch.float32)
            worst = max(worst, (single.double() - exact).abs().max().item())
            tensors[f"{name}.{shape}"] = exact.float()
        records[name] = {"lr": MUON_LR, "rounding": worst}
    for name, (cls, options, lr) in TORCH.items():
        worst = 0.0
        for shape in matrices if name == "muon_torch" else SHAPES:
            single = run_torch(name, initial[shape], gradients[shape], torch.float32)
            if name == "muon_torch":
                exact = run_muon("muon", initial[shape], gradients[shape], torch.float64)
            else:
                exact = run_torch(name, initial[shape], gradients[shape], torch.float64)
            worst = max(worst, (single.double() - exact).abs().max().item())
            tensors[f"{name}.{shape}"] = single
        limit = 0.05 if name == "muon_torch" else 1e-5
        if not worst <= limit:
            sys.exit(f"export_optimizer_golden: {name}: float32 and double part by {worst:.3g}, over {limit:g}")
        records[name] = {"class": cls.__name__, "options": {k: list(v) if isinstance(v, tuple) else v
                                                            for k, v in options.items()},
                         "lr": lr, "rounding": worst}
    facts = {"torch": torch.__version__, "lr_multipliers": LR_MULTIPLIERS, "runs": records}
    return {k: v.contiguous() for k, v in tensors.items()}, facts


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "tests/golden/optim")
    parser.add_argument("--check", action="store_true", help="compare with the files, write nothing")
    args = parser.parse_args()
    torch.set_num_threads(1)
    tensors, facts = compute()
    path = args.out / "trajectories.safetensors"
    for name, record in facts["runs"].items():
        print(f"{name:16s} rounding {record['rounding']:.2e}")
    if args.check:
        stored = load_file(path)
        if stored.keys() != tensors.keys():
            sys.exit(f"export_optimizer_golden: {path}: other tensors than recomputed; run without --check")
        worst = max((tensors[n] - stored[n]).abs().max().item() for n in tensors if not n.startswith("muon_torch"))
        if not worst <= 1e-5:
            sys.exit(f"export_optimizer_golden: {path} differs by {worst:.3g}")
        print(f"agrees, largest difference {worst:.1e}")
        return
    args.out.mkdir(parents=True, exist_ok=True)
    save_file(tensors, path, metadata={"format": "pt"})
    (args.out / "trajectories.json").write_text(json.dumps(facts, indent=1, sort_keys=True) + "\n")
    print(f"wrote {path}: {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
