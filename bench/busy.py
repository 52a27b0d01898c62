#!/usr/bin/env python3
"""Measures the part of its rate that training keeps while other programs keep the machine busy: by default one busy loop
per core, so that a fair share is one half. Ingot, Ingot as libgomp waits by default (GOMP_SPINCOUNT=300000) and, in a Python
that has torch, PyTorch take turns: all are started once and stopped (SIGSTOP) but for the one whose turn it is. A turn is a
window without the busy loops and two with them. Prints the ratio of each turn, and per program the medians over the turns
of the mean step, and of the ratio. On a machine that others share, an "idle" window is one without the loops of this
script, and ratios between programs say more than times.

  bench/busy.py [--models demo,gpt2-124m/f32,gpt2-124m/bf16] [--turns 5] [--window S] [--loops N] [--json FILE]"""
import argparse
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
PROGRAM = HERE.parent / "build/release/ingot"
DEMO = dict(layers=4, heads=3, width=192, context=256, vocab=4096, norm="rms_norm", positions="rope", mlp="swiglu",
            has_bias=False, is_tied=True)
GPT2 = dict(layers=12, heads=12, width=768, context=256, vocab=50304, norm="layer_norm", positions="learned",
            mlp="gelu_tanh", has_bias=True, is_tied=True)
# Ingot's preset and settings, PyTorch's model and dtype, seconds of a window.
MODELS = {
    "demo": ("demo", {"train.max_time": '"20m"'}, DEMO, "bf16", 3),
    "gpt2-124m/f32": ("gpt2-124m", {"precision.compute": "f32", "model.vocab": 50257}, GPT2, "f32", 15),
    "gpt2-124m/bf16": ("gpt2-124m", {"precision.compute": "bf16", "model.vocab": 50257}, GPT2, "bf16", 10),
}
COMMON = {"data.tokenizer": "byte", "model.context": 256, "train.batch_size": 4, "train.grad_accum": 1, "train.steps": 10**6,
          "checkpoint.every": 10**6, "checkpoint.best": "false", "eval.every": 0, "sample.count": 0, "eval.max_tokens": 256}


def work_as_pytorch(dtype, model, out):
    """Trains with PyTorch without end and writes a line like those of Ingot's metrics.jsonl after each step."""
    import torch
    from pytorch_model import CapConfig, Model, ModelConfig, adamw
    from pytorch_run import synthetic_batch, update
    net = Model(ModelConfig(**{**model, "cap": CapConfig()}))
    optimizer = adamw(net, 1e-3, (0.9, 0.95), 0.1, fused=True)
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    with open(out, "w", buffering=1, encoding="utf-8") as file:
        for step in range(10**9):
            begin = time.perf_counter()
            tokens, targets = synthetic_batch(step, 4, model["context"], model["vocab"])
            update(net, optimizer, tokens, targets, dtype, 1.0)
            print(json.dumps({"step_ms": 1e3 * (time.perf_counter() - begin)}), file=file)


class Program:
    """A program that trains without end, stopped but for its turns."""

    def __init__(self, name, command, environment, metrics):
        self.name, self.metrics, self.rows = name, pathlib.Path(metrics), []
        self.process = subprocess.Popen(command, env={**os.environ, **environment}, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.PIPE, text=True)
        while not self.metrics.exists() or len(self.steps_from(0)) < 3:
            if self.process.poll() is not None:
                raise RuntimeError(f"{name} ended: {self.process.stderr.read()[-400:]}")
            time.sleep(0.2)
        self.process.send_signal(signal.SIGSTOP)

    def steps_from(self, position):
        with self.metrics.open("rb") as file:
            file.seek(position)
            lines = file.read().split(b"\n")[:-1]
        return [json.loads(line)["step_ms"] for line in lines if b'"step_ms"' in line]

    def mean_step(self, window_s):
        """Returns the mean milliseconds of the steps that end in a window, without the one in which it begins."""
        position = self.metrics.stat().st_size
        time.sleep(window_s)
        while len(steps := self.steps_from(position)) < 3:
            time.sleep(0.1)
        return statistics.mean(steps[1:])

    def take_turn(self, loops, window_s):
        self.process.send_signal(signal.SIGCONT)
        time.sleep(0.2)
        idle = self.mean_step(window_s)
        for loop in loops:
            loop.send_signal(signal.SIGCONT)
        busy = self.mean_step(2 * window_s)
        for process in [*loops, self.process]:
            process.send_signal(signal.SIGSTOP)
        self.rows.append((idle, busy, idle / busy))
        print(f"  {self.name}: idle {idle:.1f} ms, busy {busy:.1f} ms, keeps {idle / busy:.3f} "
              f"(load {os.getloadavg()[0]:.1f})", flush=True)


def programs(model, folder, text):
    preset, settings, net, dtype, _ = MODELS[model]
    for name, environment in (("ingot", {"GOMP_SPINCOUNT": ""}), ("ingot, libgomp's default", {"GOMP_SPINCOUNT": "300000"})):
        out = folder / f"run{len(list(folder.iterdir()))}"
        command = [PROGRAM, "train", preset, "--data", text, "--out", out, "--quiet"]
        for key, value in {**COMMON, **settings}.items():
            command += ["--set", f"{key}={value}"]
        if not environment["GOMP_SPINCOUNT"]:
            command, environment = ["env", "-u", "GOMP_SPINCOUNT", "-u", "OMP_WAIT_POLICY", *command], {}
        yield Program(name, command, environment, out / "metrics.jsonl")
    try:
        import torch  # noqa: F401
    except ImportError:
        return
    out = folder / "pytorch"
    yield Program("pytorch", [sys.executable, __file__, "--work-as-pytorch", json.dumps([dtype, net, str(out)])], {}, out)


def measure(model, arguments):
    print(f"{model}:", flush=True)
    started, loops = [], []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        text = folder / "text.txt"
        text.write_text("".join(p.read_text(encoding="utf-8") for p in sorted(HERE.parent.glob("docs/*.md"))))
        try:
            for program in programs(model, folder, text):
                started.append(program)
            for _ in range(arguments.loops or len(os.sched_getaffinity(0))):
                loops.append(subprocess.Popen([sys.executable, "-c", "while True: pass"]))
                loops[-1].send_signal(signal.SIGSTOP)
            for turn in range(arguments.turns):
                for program in started[turn % len(started):] + started[:turn % len(started)]:
                    program.take_turn(loops, arguments.window or MODELS[model][4])
        finally:
            for process in [*loops, *(program.process for program in started)]:
                process.kill()
                process.wait()
    for program in started:
        idle, busy, kept = (statistics.median(column) for column in zip(*program.rows))
        print(f"{model}, {program.name}: idle {idle:.1f} ms, busy {busy:.1f} ms, keeps {kept:.3f} (medians of {len(program.rows)})",
              flush=True)
        yield {"model": model, "program": program.name, "idle_ms": idle, "busy_ms": busy, "kept": kept}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--window", type=float, default=0, help="seconds; 0: one that fits the model")
    parser.add_argument("--loops", type=int, default=0, help="busy loops; 0: one per core")
    parser.add_argument("--json", help="write the rows to this file")
    parser.add_argument("--work-as-pytorch", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.work_as_pytorch:
        return work_as_pytorch(*json.loads(arguments.work_as_pytorch))
    rows = [row for model in arguments.models.split(",") for row in measure(model, arguments)]
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
