#!/usr/bin/env python3
"""Makes a page of Markdown from the lines of results.jsonl (bench/gpu/rows.py), for docs/benchmarks.

  python3 bench/gpu/summary.py OUT/results.jsonl >docs/benchmarks/h200.md"""
import json
import sys

GIB = 2**30
GOALS = [  # words, figure, smallest good value
    ("124M: Ingot / PyTorch", lambda f: f.ratio("gpt2-124m"), 1.25),
    ("124M: part of the measured product rate", lambda f: f.of_peak(f.step("gpt2-124m", "tflops")), 0.60),
    ("1.3B: part of the measured product rate", lambda f: f.of_peak(f.step("llama-1.3b", "tflops")), 0.70),
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

    def peak(self):
        """The measured rate of large products in TFLOP/s, or None."""
        found = [line["tflop_s"] for line in self.named("rates") if "tflop_s" in line]
        return found[-1] if found else None

    def of_peak(self, tflops):
        return tflops / self.peak() if tflops and self.peak() else None

    def steps(self):
        return [line for line in self.newest.values() if line["row"].startswith("step-")]

    def step(self, model, field, variant="eager"):
        """The median of a field, or None: over the turns beside PyTorch; without any, of the runs before them."""
        lines = [line for line in self.steps() if line["name"] == "ingot" and line["model"] == model and
                 line["variant"] == variant and line.get(field) is not None]
        found = sorted(line[field] for line in [line for line in lines if line.get("turn")] or lines)
        return found[len(found) // 2] if found else None

    def torch(self, model, field):
        found = sorted(line[field] for line in self.steps() if line["name"] == "torch" and line["model"] == model and
                       line.get(field) is not None)
        return found[len(found) // 2] if found else None

    def ratio(self, model):
        found = [line["ratio"] for line in self.steps() if line["name"] == "ratio" and line["model"] == model]
        return found[-1] if found else None

    def fp8_gain(self, model):
        plain, fp8 = self.step(model, "step_ms"), self.step(model, "step_ms", "fp8")
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
                     number(get("of_datasheet"), "{:.1%}"), number(f.of_peak(get("tflops")), "{:.1%}"),
                     number(device_bytes and device_bytes / GIB, "{:.1f}"),
                     number(f.ratio(model)) if variant == "eager" else ""])
        if variant == "eager" and f.torch(model, "step_ms"):
            used = f.torch(model, "device_bytes")
            rows.append([model, "PyTorch compiled", number(f.torch(model, "step_ms")),
                         number(f.torch(model, "tokens_per_s"), "{:.0f}"), number(f.torch(model, "of_datasheet"), "{:.1%}"),
                         number(f.of_peak(f.torch(model, "tflops")), "{:.1%}"), number(used and used / GIB, "{:.1f}"), ""])
    return table(["model", "variant", "ms per step", "tokens/s", "of 989 TFLOP/s", "of measured rate", "GiB", "ratio"], rows)


def choices(f):
    """Which attention ran, and which products other kernels replace."""
    rows = [[line["model"], line["variant"], line.get("attention_forward", ""), line.get("attention_backward", ""),
             *("; ".join(line.get(key, [])) for key in ("refused", "slower"))]
            for line in f.steps() if line["name"] == "ingot" and "attention_forward" in line]
    return table(["model", "variant", "attention", "its backward pass", "products refused", "slower than kernels of their own"],
                 [row for i, row in enumerate(rows) if row not in rows[:i]])


def kernels(f):
    rows = [[line["name"], number(line["us"], "{:.1f}"), number(line["gb_s"], "{:.0f}"), number(line["of_copy"], "{:.0%}")]
            for line in f.named("rates", "kernels") if "gb_s" in line]
    return table(["kernel", "µs", "GB/s", "of the copy"], rows)


def products(f):
    rows = [[line["name"], number(line["us"], "{:.1f}"), number(line["tflop_s"], "{:.0f}"), number(f.of_peak(line["tflop_s"]), "{:.0%}")]
            for line in f.newest.values() if "tflop_s" in line]
    return table(["product", "µs", "TFLOP/s", "of the measured rate"], rows)


def courses(f):
    rows = [[line["row"], line["name"], str(line["steps"]), f"{line['apart']:.1e}", f"{line['limit']:.0e}"]
            for line in f.newest.values() if "apart" in line]
    return table(["comparison", "losses", "steps", "apart at most", "limit"], rows)


def several(f):
    rows = [[line["model"], line["name"], str(line["gpus"]), number(line["step_ms"]), number(line["waited_ms"])]
            for line in f.newest.values() if line["row"].startswith("ranks-")]
    return table(["model", "layout", "GPUs", "ms per step", "of it waiting for ranks"], rows)


def muon(f):
    rows = [[line["model"], str(line["gpus"]), number(line["gather_ms"]), number(line["messages_ms"]), number(line["ratio"], "{:.3f}")]
            for line in f.newest.values() if line["row"].startswith("muon-")]
    return table(["model", "GPUs", "ms with one gather per round", "ms with one message per matrix", "ratio"], rows)


def probe(f):
    """What the probe calls a failure."""
    found = [line["probe"] for line in f.lines if line.get("probe", {}).get("failed")]
    return table(["part", "failure"], [[str(line.get("part", "")), " ".join(f"{key}: {value}" for key, value in line.items()
                                                                           if key not in ("part", "failed"))] for line in found])


def tests(f):
    rows = [[str(line["passed"]), " ".join(line["failed"]), " ".join(line["unfinished"]),
             " ".join(f"{name} {ms * 1e-3:.1f} s" for ms, name in line["slowest"])] for line in f.named("tests")]
    return table(["passed", "failed", "did not end", "slowest"], rows)


def statuses(f):
    return table(["row", "status", "s", "why"],
                 [[line["row"], line["status"], str(line["seconds"]), line.get("why", "").replace("|", "/").replace("\n", " ")]
                  for line in f.lines if "status" in line])


SECTIONS = [("Goals", goals), ("Steps", steps), ("Attention and products that ran", choices), ("Failures of the probe", probe),
            ("Losses", courses), ("Device tests", tests),
            ("Several GPUs", several), ("Muon's updates on several GPUs", muon), ("Products and attention", products),
            ("Kernels", kernels), ("Rows", statuses)]


def page(lines):
    f = Figures(lines)
    last = lines[-1] if lines else {}
    text = [f"# Ingot on {last.get('device', '?')}\n",
            f"Measured by `bench/gpu/run.sh OUT {last.get('command', '?')}` with {last.get('program', '?')}, {last.get('date', '?')}. Times are medians; "
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
