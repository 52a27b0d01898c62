#!/usr/bin/env python3
"""Measures what activation checkpointing costs and saves, for single operations and for whole blocks.

Times whole steps of a LLaMA-style model under every policy, alternating in one process (ingot bench checkpointing), and
compares them with two published tables. --steps counts rounds; --data and --seeds have no effect, as tokens are random.
"""

import json
import math
import subprocess
import sys

import runs

# SMALL has the proportions of the published 1B run: four query heads per kv head, an MLP of four times the width.
SMALL = {"layers": 16, "heads": 8, "kv_heads": 2, "width": 256, "ffn": 1024, "vocab": 8192, "context": 512}
FULL = {"layers": 16, "heads": 32, "kv_heads": 8, "width": 2048, "ffn": 8192, "vocab": 32768, "context": 2048}
ROUNDS = 31

# Published: recomputed operation -> (its name here, change of compute, change of reserved memory).
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


def interval(policy):
    """Returns the 95 % interval of the change of time, widened by the change of the null arm, which should be zero."""
    null = abs(time("none again"))
    return rows[policy]["time_change_low"] - null, rows[policy]["time_change_high"] + null


def time_is(policy, low, high):
    """Returns True if the change of time lies in [low, high], False if not, None if the interval allows both."""
    least, most = interval(policy)
    if low <= least and most <= high:
        return True
    return False if most < low or high < least else None


def all_of(*answers):
    return False if False in answers else None if None in answers else True


def is_cheaper(a, b):
    """Returns True if interval a lies below interval b, False if above, None if they overlap (same unit)."""
    return True if a[1] < b[0] else False if b[1] < a[0] else None


def per_byte(policy):
    least, most = interval(policy)
    return max(least, 1e-3) / saved(policy), max(most, 1e-3) / saved(policy)


def changes(policy):
    least, most = interval(policy)
    return [f"{percent(time(policy))} ({100 * least:+.1f} to {100 * most:+.1f})", percent(rows[policy]["bytes_change"])]


WORDS = {True: "holds", False: "refuted", None: "not told apart"}


def verdict(claims):
    held = list(claims.values())
    return ("holds" if all(held) else "holds in part" if True in held else "refuted" if set(held) == {False}
            else "not told apart")


def judged(claims):
    return runs.table(["claim", "here"], [[claim, WORDS[held]] for claim, held in claims.items()])


setting = (f"{layers} layers of a LLaMA-style model in {result['dtype']}, batch {result['batch_size']} × "
           f"{result['context']}, whole optimizer steps, medians of {result['rounds']} rounds in which every policy has "
           "its turn; changes are against keeping everything, in parentheses their 95 % interval, widened by what the null arm "
           f"(keeping everything, once more) seems to change: {percent(time('none again'))}.")

ALWAYS = float("inf")
by_part = {
    "embedding and norms cost nothing to compute again (under 2 %)":
        all_of(time_is("embedding", -ALWAYS, 0.02), time_is("norms", -ALWAYS, 0.02)),
    "SwiGLU saves at least twice what attention does": saved("mlp") > 2 * saved("attention"),
    "SwiGLU costs less time per byte saved than attention": is_cheaper(per_byte("mlp"), per_byte("attention")),
    "a whole block costs about half the theoretical third of a step (under 22 %)": time_is("block", -ALWAYS, 0.22),
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
    "The bytes follow from the shapes: SwiGLU holds most of a block's numbers. The times are this processor's.")

half_as_much = is_cheaper(tuple(interval("sqrt")), tuple(0.67 * x for x in interval("block")))
by_depth = {
    "every layer: 30 to 40 % more time in practice": time_is("block", 0.28, 0.42),
    "every layer: about twice the total compute": time_is("block", 0.8, ALWAYS),
    f"every √n layers ({segments} segments): less memory than every layer": saved("sqrt") > saved("block"),
    "every √n layers: half the overhead of every layer": half_as_much,
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
