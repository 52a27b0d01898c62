#!/usr/bin/env python3
"""Writes docs/plan-tables.md: tables that follow from a configuration alone, by `ingot plan` and bench/formats.

  bench/plan_tables.py [--program build/release/ingot] [--check]

Nothing is measured, so the page is the same on every machine. --check compares it with the committed one instead.
"""
import argparse
import difflib
import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/plan-tables.md"
GB = 1e9


class Planner:
    def __init__(self, program):
        self.program = program

    def __call__(self, preset, **keys):
        """Returns the plan as a dictionary; keys are written with two underscores for the dot."""
        words = [str(self.program), "plan", preset, "--hardware", "h100-sxm", "--json"]
        for key, value in keys.items():
            words += ["--set", f"{key.replace('__', '.')}={value}"]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if not done.stdout:
            sys.exit(f"plan_tables: {' '.join(words)}: {done.stderr}")
        return json.loads(done.stdout)


def largest(plan):
    return max(plan["ranks"], key=lambda rank: rank["peak_bytes"])


def arena(plan, name):
    return largest(plan)["arenas"].get(name, 0)


def table(head, rows):
    return "\n".join(["| " + " | ".join(head) + " |", "|" + "---|" * len(head)] + ["| " + " | ".join(row) + " |" for row in rows])


def gb(size):
    return f"{size / GB:.1f} GB"


def formats(program):
    lines = subprocess.run([str(program)], capture_output=True, text=True, check=True).stdout.splitlines()
    return table(["format", "bits", "exponent", "mantissa", "largest", "smallest normal", "smallest", "decimal digits"],
                 [line.split("\t") for line in lines])


def optimizers(plan):
    claimed = {"sgd": "0", "momentum": "4", "adam": "8", "adamw": "8", "adafactor": "about 4", "lion": "4", "adamw8bit": "2"}
    rows = []
    for kind, claim in claimed.items():
        # The state is sharded, so that it can be divided by a rank's share of the weights.
        found = plan("llama2-70b", optimizer__kind=kind, parallel__fsdp=8, train__grad_accum=1024)
        state = sum(rank["arenas"].get("optimizer", 0) * rank["count"] for rank in found["ranks"])
        rows.append([f"`{kind}`", claim, f"{state / found['parameters']:.2f}", gb(state)])
    return table(["rule", "guide: bytes per parameter", "here", "LLaMA 2 70B"], rows)


def per_parameter(plan):
    rows = []
    for name, keys in {"f32 only": {"precision__compute": "f32"}, "bf16, f32 masters": {},
                       "bf16, masters as bf16 + tail": {"precision__master": "bf16_tail"}}.items():
        found = plan("llama2-7b", **keys)
        sizes = [arena(found, part) / found["parameters"] for part in ("parameters", "gradients", "optimizer")]
        rows.append([name, *(f"{size:.2f}" for size in sizes), f"{sum(sizes):.2f}"])
    return table(["LLaMA 2 7B with AdamW", "weights", "gradients", "optimizer", "bytes per parameter"], rows)


def seventy(plan):
    ddp, fsdp = plan("llama2-70b", parallel__dp=8), plan("llama2-70b", parallel__fsdp=8)
    masters = 4 * ddp["parameters"]
    # Shards are kept in f32 alone; a few units at a time are gathered in bf16, and their gradients in f32.
    lines = [("weights in bf16 (gathered: two units)", "140 GB", "17.5 GB",
              lambda p, n: arena(p, "parameters") + arena(p, "gathered units") - masters / n),
             ("gradients (f32 here, bf16 in the guide)", "140 GB", "17.5 GB",
              lambda p, n: arena(p, "gradients") + arena(p, "gathered gradients")),
             ("optimizer, f32", "560 GB", "70 GB", lambda p, n: arena(p, "optimizer")),
             ("f32 masters", "280 GB", "35 GB", lambda p, n: masters / n)]
    rows = [[name, a, gb(size(ddp, 1)), b, gb(size(fsdp, 8))] for name, a, b, size in lines]
    rows.append(["sum", "1,120 GB", gb(sum(line[3](ddp, 1) for line in lines)), "140 GB", gb(sum(line[3](fsdp, 8) for line in lines))])
    return table(["LLaMA 2 70B, 8 ranks, AdamW", "guide: DDP", "here: dp=8", "guide: FSDP", "here: fsdp=8"], rows)


def fits(plan):
    return f"{gb(largest(plan)['peak_bytes'])}, {'fits' if plan['fits'] else 'does not fit'}"


def gpt3(plan):
    rows = []
    for keys, policy in (({"tp": 8, "pp": 4, "dp": 32}, "selective"), ({"tp": 8, "pp": 4, "dp": 32}, "block"),
                         ({"tp": 8, "pp": 8, "dp": 16}, "selective"), ({"tp": 8, "pp": 16, "dp": 8}, "selective"),
                         ({"tp": 8, "pp": 4, "dp": 1, "fsdp": 32}, "selective")):
        found = plan("gpt3-175b", precision__compute="bf16", train__batch_ramp="[]", train__grad_accum=1536, activations__policy=policy,
                     **{f"parallel__{axis}": degree for axis, degree in keys.items()})
        rows.append([" ".join(f"{axis}={degree}" for axis, degree in keys.items() if degree > 1), policy, fits(found),
                     f"{found['step_s']:.1f} s", f"{100 * found['mfu']:.0f} %", f"{100 * found['bubble']:.0f} %"])
    return table(["GPT-3 175B on 1,024 H100", "recomputation", "most memory of a rank", "step", "MFU", "bubble"], rows)


def activations(plan):
    rows = []
    for policy in ("none", "selective", "block", "sqrt"):
        found = plan("llama2-70b", activations__policy=policy, train__grad_accum=1, train__batch_size=1)
        rows.append([f"`{policy}`", gb(arena(found, "activations")), gb(arena(found, "scratch"))])
    return table(["LLaMA 2 70B, 1 x 4,096 tokens, bf16", "activations kept", "scratch"], rows)


def parallelism(plan):
    rows = []
    common = {"train__grad_accum": 64, "train__batch_size": 1, "activations__policy": "block"}
    for name, keys in {"replicas": {"dp": 8}, "shards": {"fsdp": 8}, "tensor": {"tp": 8, "dp": 1}, "pipeline": {"pp": 8}}.items():
        found = plan("llama2-7b", **common, **{f"parallel__{axis}": degree for axis, degree in keys.items()})
        waits = ", ".join(f"{group} {1e3 * seconds:.0f} ms" for group, seconds in found["waits_s"].items() if seconds > 5e-4)
        rows.append([name, found["layout"], gb(largest(found)["peak_bytes"]), f"{found['step_s']:.2f} s", waits or "none",
                     f"{100 * found['bubble']:.0f} %"])
    return table(["LLaMA 2 7B, 64 x 4,096 tokens, 8 H100", "layout", "memory of a rank", "step", "rank 0 waits for", "bubble"], rows)


def training_log(plan):
    base = {"train__graph": "false", "precision__fp8": "none"}
    rows = []
    for what, log, keys in (
            ("dense loss, every block recomputed", "2.371 s, 73.8 GB", {"head__kind": "dense", "activations__policy": "block"}),
            ("chunked loss, every block recomputed", "–", {"activations__policy": "block"}),
            ("loss recomputed (cut cross-entropy, f32 sums)", "3.002 s, 58.7 GB", {"head__kind": "recompute", "activations__policy": "block"}),
            ("FP8 linears, tensorwise", "-10 % time, -20 % memory", {"precision__fp8": "tensorwise", "activations__policy": "block"}),
            ("FP8 linears, rowwise", "+2 % time, -20 % memory", {"precision__fp8": "rowwise", "activations__policy": "block"}),
            ("the preset llama-1b-h100", "–", {"precision__fp8": "tensorwise", "train__graph": "true"})):
        found = plan("llama-1b-h100", **{**base, **keys})
        rows.append([what, log, f"{found['step_s']:.3f} s, {fits(found)}"])
    parts = []
    none = plan("llama-1b-h100", **base, train__batch_size=16, activations__policy="none")
    for what, log, keys in (("nothing", "0 %, 0 %", {"activations__policy": "none"}),
                            ("norms", "0 %, 0 %", {"activations__policy": "selective", "activations__parts": '["norms"]'}),
                            ("MLP", "+6 %, -40 %", {"activations__policy": "selective", "activations__parts": '["mlp"]'}),
                            ("every block", "+17 %, -56 %", {"activations__policy": "block"})):
        found = plan("llama-1b-h100", **base, train__batch_size=16, **keys)
        memory = largest(found)["peak_bytes"] / largest(none)["peak_bytes"] - 1
        parts.append([what, log, f"{100 * (found['step_s'] / none['step_s'] - 1):+.0f} %, {100 * memory:+.0f} %"])
    return (table(["64 x 2,048 tokens on one H100", "log, PyTorch compiled", "plan"], rows) + "\n\n" +
            table(["recomputed, 16 x 2,048 tokens", "log: time, reserved memory", "plan: time, memory"], parts))


def page(program):
    plan = Planner(program)
    return f"""# Tables that follow from a configuration

`bench/plan_tables.py` writes this page by `ingot plan` on the description of an H100 (`configs/hardware/h100-sxm.toml`) and by
`bench/formats`; a test compares. Times are predictions that no GPU has confirmed. "Guide" and "log" are the training guide and the
training log with which these figures are compared.

## Number formats

{formats(program.parent / "bench/formats")}

## Optimizer state

{optimizers(plan)}

## Bytes per parameter

The guide counts 16 bytes in both cases, with gradients in bf16; gradients are f32 here, because micro-batches are summed in them.

{per_parameter(plan)}

## A 70B model on 8 GPUs

{seventy(plan)}

## Activations of a 70B model

{activations(plan)}

## Kinds of parallelism

{parallelism(plan)}

## 175B on 1,024 GPUs

The guide's example is TP = 8, PP = 4, DP = 32. AdamW's state and f32 masters alone are 12 bytes of each of a rank's 5.5 billion
parameters.

{gpt3(plan)}

## The 1B training log

{training_log(plan)}
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--program", default=str(ROOT / "build/release/ingot"))
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    text = page(pathlib.Path(options.program).resolve())
    if not options.check:
        PAGE.write_text(text)
        return 0
    changes = list(difflib.unified_diff(PAGE.read_text().splitlines(), text.splitlines(), "docs/plan-tables.md", "now", lineterm=""))
    print("\n".join(changes) or "plan_tables: docs/plan-tables.md is what the plans say")
    return 1 if changes else 0


if __name__ == "__main__":
    sys.exit(main())
