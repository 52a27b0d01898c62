#!/usr/bin/env python3
"""Makes a page of Markdown from the lines of results.jsonl (bench/gpu/phases.py), for docs/benchmarks.

  python3 bench/gpu/summary.py OUT/results.jsonl >docs/benchmarks/h200.md"""
import json
import sys

GIB = 2**30
GOALS = [  # words, figure, smallest good value
    ("124M: Ingot / PyTorch", lambda f: f.ratio("gpt2-124m"), 1.25),
    ("124M: part of the measured product rate", lambda f: f.step("gpt2-124m", "mfu"), 0.60),
    ("1.3B: part of the measured product rate", lambda f: f.step("llama-1.3b", "mfu"), 0.70),
    ("1.3B: FP8 linears / bf16", lambda f: f.fp8_gain("llama-1.3b"), 1.2),
    ("FP8 products of the head / bf16", lambda f: f.fp8_head_gain("gpt2-124m"), 1.6),
    ("slowest memory-bound kernel / copy", lambda f: f.slowest_kernel(), 0.85),
]


class Figures:
    """The newest line of every row and name."""

    def __init__(self, lines):
        self.lines = lines
        self.newest = {}
        for line in lines:
            if "name" in line:
                key = (line["row"], line["name"], line.get("model"), line.get("variant"), line.get("turn"), line.get("gpus"))
                self.newest[key] = line

    def named(self, *rows):
        return [line for line in self.newest.values() if line["row"] in rows or not rows]

    def steps(self):
        return [line for line in self.newest.values() if line["row"].startswith(("step-", "hybrid-"))]

    def step(self, model, field, variant="eager"):
        """The median over the turns of a field, or None."""
        found = sorted(line[field] for line in self.steps() if line["name"] == "ingot" and line["model"] == model and
                       line["variant"] == variant and line.get("turn") != 0 and line.get(field) is not None)
        return found[len(found) // 2] if found else None

    def torch(self, model, field):
        found = sorted(line[field] for line in self.steps() if line["name"] == "torch" and line["model"] == model and
                       line.get(field) is not None)
        return found[len(found) // 2] if found else None

    def ratio(self, model):
        found = [line["ratio"] for line in self.steps() if line["name"] == "ratio" and line["model"] == model]
        return found[-1] if found else None

    def fp8_gain(self, model):
        plain, fp8 = self.step(model, "step_ms"), self.step(model, "step_ms", "fp8-tensorwise")
        return plain / fp8 if plain and fp8 else None

    def fp8_head_gain(self, model):
        times = {}
        for line in self.named("products"):
            for form in ("NT", "e4m3 fast"):
                if line["name"].startswith(f"{model} head {form} "):
                    times[form] = line["us"]
        return times["NT"] / times["e4m3 fast"] if len(times) == 2 else None

    def slowest_kernel(self):
        found = [line["of_copy"] for line in self.named("kernels") if "of_copy" in line]
        return min(found, default=None)


def table(head, rows):
    if not rows:
        return ""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows]) + "\n"


def number(value, form="{:.2f}"):
    return "" if value is None else form.format(value)


def goals(f):
    rows = []
    for words, figure, goal in GOALS:
        value = figure(f)
        rows.append([words, f"{goal:.2f}", number(value), "" if value is None else "yes" if value >= goal else "no"])
    return table(["goal", "at least", "measured", "reached"], rows)


def steps(f):
    rows = []
    seen = dict.fromkeys((line["model"], line["variant"]) for line in f.steps() if line["name"] == "ingot")
    for model, variant in seen:
        def get(field, model=model, variant=variant):
            return f.step(model, field, variant)
        device_bytes = get("device_bytes")
        rows.append([model, variant, number(get("step_ms")), number(get("tokens_per_s"), "{:.0f}"),
                     number(get("of_datasheet"), "{:.1%}"), number(get("mfu"), "{:.1%}"),
                     number(device_bytes and device_bytes / GIB, "{:.1f}"),
                     number(f.ratio(model)) if variant == "eager" else ""])
        if variant == "eager" and f.torch(model, "step_ms"):
            used = f.torch(model, "device_bytes")
            rows.append([model, "PyTorch compiled", number(f.torch(model, "step_ms")),
                         number(f.torch(model, "tokens_per_s"), "{:.0f}"), number(f.torch(model, "of_datasheet"), "{:.1%}"),
                         number(f.torch(model, "mfu"), "{:.1%}"), number(used and used / GIB, "{:.1f}"), ""])
    return table(["model", "variant", "ms per step", "tokens/s", "of 989 TFLOP/s", "of measured rate", "GiB", "ratio"], rows)


def kernels(f):
    rows = [[line["name"], number(line["us"], "{:.1f}"), number(line["gb_s"], "{:.0f}"), number(line["of_copy"], "{:.0%}")]
            for line in f.named("kernels", "products", "attention", "fused") if "gb_s" in line]
    return table(["kernel", "µs", "GB/s", "of the copy"], rows)


def products(f):
    rows = [[line["name"], number(line["us"], "{:.1f}"), number(line["tflop_s"], "{:.0f}")]
            for line in f.named("products", "attention") if "tflop_s" in line]
    return table(["product", "µs", "TFLOP/s"], rows)


def comparisons(f):
    rows = []
    for line in f.named("attention", "fused"):
        ways = [key for key in line if key.endswith("_us")]
        if "ratio" in line and len(ways) == 2:
            rows.append([line["name"], *(f"{key[:-3]} {line[key]:.1f} µs" for key in ways), number(line["ratio"], "{:.3f}")])
    return table(["comparison", "one", "other", "ratio"], rows)


def heads(f):
    rows = [[line["row"], line["name"], number(line["ms"]), number(line["scratch_bytes"] / GIB, "{:.2f}")]
            for line in f.newest.values() if line["row"].startswith("head-")]
    return table(["head", "kind", "ms", "GiB of scratch"], rows)


def courses(f):
    rows = [[line["row"], line["name"], str(line["steps"]), f"{line['apart']:.1e}", f"{line['limit']:.0e}"]
            for line in f.named("parity", "losses-124m") if "apart" in line]
    return table(["comparison", "losses", "steps", "apart at most", "limit"], rows)


def several(f):
    rows = [[line["model"], line["name"], str(line["gpus"]), number(line["step_ms"]), number(line["waited_ms"])]
            for line in f.newest.values() if line["row"].startswith("ranks-")]
    return table(["model", "layout", "GPUs", "ms per step", "of it waiting for ranks"], rows)


def muon(f):
    rows = [[line["model"], str(line["gpus"]), number(line["gather_ms"]), number(line["messages_ms"]), number(line["ratio"], "{:.3f}")]
            for line in f.newest.values() if line["row"].startswith("muon-")]
    return table(["model", "GPUs", "ms with one gather per round", "ms with one message per matrix", "ratio"], rows)


def statuses(f):
    newest = {}
    for line in f.lines:
        if "status" in line:
            newest[(line["phase"], line["row"])] = line
    return table(["phase", "row", "status", "s", "why"],
                 [[phase, row, line["status"], str(line["seconds"]), line.get("why", "").replace("|", "/")]
                  for (phase, row), line in sorted(newest.items())])


SECTIONS = [("Goals", goals), ("Steps", steps), ("Several GPUs", several), ("Muon's updates on several GPUs", muon),
            ("Losses", courses), ("Heads", heads), ("Kernels", kernels), ("Products and attention", products), ("Two ways by turns", comparisons), ("Rows", statuses)]


def page(lines):
    f = Figures(lines)
    last = lines[-1] if lines else {}
    text = [f"# Ingot on {last.get('device', '?')}\n",
            f"Measured by `bench/gpu/run.sh` with {last.get('program', '?')}, {last.get('date', '?')}. Times are medians; "
            "data is random; ratios are medians of turns in one run.\n"]
    for line in f.named("doctor"):
        text.append("".join(f"- {name}: {value}\n" for name, value in line["rows"].items() if "cuda" in name))
    for title, make in SECTIONS:
        body = make(f)
        if body:
            text.append(f"## {title}\n\n{body}")
    return "\n".join(text)


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as file:
        print(page([json.loads(line) for line in file if line.strip()]), end="")
