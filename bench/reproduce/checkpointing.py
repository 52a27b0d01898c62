#!/usr/bin/env python3
"""Activation checkpointing: what it costs and saves, part by part and by whole blocks.

Whole steps of a LLaMA-style model under every policy, by turns in one process (ingot bench checkpointing), beside two
published tables. --steps counts rounds; --data and --seeds mean nothing here, tokens are random.
"""

import json
import math
import subprocess
import sys

import runs

# The proportions of the published 1B run: four query heads per kv head, an MLP four times as wide as the model.
SMALL = {"layers": 16, "heads": 8, "kv_heads": 2, "width": 256, "ffn": 1024, "vocab": 8192, "context": 512}
FULL = {"layers": 16, "heads": 32, "kv_heads": 8, "width": 2048, "ffn": 8192, "vocab": 32768, "context": 2048}
ROUNDS = 31

# Published: part -> (its name here, change of compute, change of reserved memory).
PUBLISHED = {"embedding": ("embedding", "~0 %", "−0.5 %"), "attention and MLP norms": ("norms", "~0 %", "~0 %"),
             "attention": ("attention", "+6 %", "−11 %"), "SwiGLU": ("mlp", "+6 %", "−40 %"),
             "whole block": ("block", "+17 %", "−56 %")}

args = runs.arguments(__doc__)
command = [args.ingot, "bench", "checkpointing", "tiny-llama", "--json", "--steps", str(args.steps or ROUNDS),
           "--set", "precision.compute=bf16", "--set", "train.batch_size=2"]
for key, value in (FULL if args.full else SMALL).items():
    command += ["--set", f"model.{key}={value}"]
done = subprocess.run(command, capture_output=True, text=True)
if done.returncode != 0:
    sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr[-2000:]}")
result = json.loads(done.stdout)
rows = {row["policy"]: row for row in result["rows"]}
layers, segments = result["layers"], math.ceil(math.sqrt(result["layers"]))


def time(policy):
    return rows[policy]["time_change"]


def saved(policy):
    return -rows[policy]["bytes_change"]


def percent(fraction):
    return f"{100 * fraction:+.1f} %"


def changes(policy):
    return [percent(rows[policy]["time_change"]), percent(rows[policy]["bytes_change"])]


def verdict(claims):
    held = sum(claims.values())
    return "holds" if held == len(claims) else "holds in part" if held else "refuted"


def judged(claims):
    return runs.table(["claim", "here"], [[claim, "holds" if held else "refuted"] for claim, held in claims.items()])


setting = (f"{layers} layers of a LLaMA-style model in {result['dtype']}, batch {result['batch_size']} × "
           f"{result['context']}, whole optimizer steps, medians of {result['rounds']} rounds in which every policy has "
           "its turn; changes are against keeping everything.")

by_part = {
    "embedding and norms cost nothing to compute again": max(time("embedding"), time("norms")) < 0.02,
    "SwiGLU saves at least twice what attention does": saved("mlp") > 2 * saved("attention"),
    "SwiGLU saves most bytes per time of the parts with products":
        saved("mlp") / max(time("mlp"), 1e-3) > saved("attention") / max(time("attention"), 1e-3),
    "a whole block costs about half the theoretical third of a step": time("block") < 0.22,
}
runs.write_section(
    args, "Activation checkpointing, part by part",
    "recomputing SwiGLU alone is the best trade: +6 % compute for −40 % memory; a whole block +17 % for −56 %.",
    setting + " Ours are of the activation arena, the published ones of all memory reserved on the GPU.\n\n" +
    runs.table(["computed again", "published compute", "published memory", "time", "activations"],
               [[name, compute, memory, *changes(policy)] for name, (policy, compute, memory) in PUBLISHED.items()]) +
    "\n\n" + judged(by_part) + "\n\nEvery policy:\n\n" +
    runs.table(["computed again", "step", "time", "activations", "bytes"],
               [[name, f"{row['step_ms']:.0f} ms", percent(row["time_change"]),
                 f"{row['activation_bytes'] / 2**20:.1f} MiB", percent(row["bytes_change"])]
                for name, row in rows.items()]),
    verdict(by_part),
    "The order of the parts is a property of their shapes: SwiGLU holds most of a block's numbers. What it costs depends on "
    "how much of a step is products: on a processor nearly all, on a GPU much is waiting for memory and costs no more. "
    "The embedding's row is the noise of the others: looking its rows up once more is next to no work.")

by_depth = {
    "every layer: 30 to 40 % more time in practice": 0.28 <= time("block") <= 0.42,
    "every layer: about twice the total compute": time("block") > 0.8,
    f"every √n layers ({segments} segments): less memory than every layer": saved("sqrt") > saved("block"),
    "every √n layers: half the overhead of every layer": time("sqrt") < 0.67 * time("block"),
}
runs.write_section(
    args, "Activation checkpointing, by depth",
    "every n layers roughly doubles the total compute (30 to 40 % in practice); the optimal strategy is every √n layers, "
    "with O(√n) memory and about 50 % overhead.",
    setting + "\n\n" + runs.table(["kept", "time", "activations"],
                                  [["every layer's input", *changes("block")],
                                   [f"the inputs of {segments} segments", *changes("sqrt")]]) + "\n\n" + judged(by_depth),
    verdict(by_depth),
    "Both run one more forward pass, a third of a step's work and no doubling, less what backward never needs: a segment's "
    "last product, and the topmost segment, which is still in memory. A segment's inner results are all there at once, and "
    f"one block's weigh {rows['none']['activation_bytes'] / layers / (rows['none']['activation_bytes'] - rows['embedding']['activation_bytes']):.0f} "
    "times its input: √n segments hold less only for far deeper models.")
