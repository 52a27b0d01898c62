#!/usr/bin/env python3
"""Runs every row of the measurements for a GPU (bench/gpu/phases.py) in miniature on the simulated device.

  python3 tests/gpu_phases_test.py BUILD_TESTS_FOLDER

A row may be skipped only for want of torch or numpy; then PyTorch's side runs where there is a Python that has them
(.ci/run, step hf). Times and ratios of a simulated device mean nothing and are not looked at."""
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "bench" / "gpu"))
import phases  # noqa: E402
import summary  # noqa: E402

BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
PROGRAMS = {"ingot": "ingot_simulated_cuda", "ingot_cuda_tests": "simulated_cuda_kernel_test",
            "device_bench": "device_bench_simulated_cuda", "muon_bench": "muon_bench_simulated_cuda"}
NEEDS = {"torch": ("step-gpt2-124m", "step-llama-350m", "step-llama-1.3b"), "numpy": ("losses-124m",)}


def has(module):
    return importlib.util.find_spec(module) is not None


class Phases(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.out = pathlib.Path(self.folder.name) / "out"
        self.programs = pathlib.Path(self.folder.name) / "programs"
        self.programs.mkdir()
        for name, built in PROGRAMS.items():
            (self.programs / name).symlink_to(BUILD / built)

    def run_phase(self, phase, *more):
        command = ["bash", ROOT / "bench" / "gpu" / "run.sh", self.out, phase, "--dry", "--programs", self.programs, *more]
        environment = {**os.environ, "PATH": f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"}
        done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              env=environment, check=False)
        return done.returncode, done.stdout

    def lines(self):
        return [json.loads(line) for line in (self.out / "results.jsonl").read_text().splitlines()]

    def check_phase(self, phase):
        code, said = self.run_phase(phase)
        log = (self.out / "log.txt").read_text()[-4000:] if (self.out / "log.txt").exists() else ""
        self.assertEqual(code, 0, f"{said}\n{log}")
        statuses = {line["row"]: line for line in self.lines() if "status" in line}
        self.assertEqual(list(statuses), [name for name, _, _ in phases.ROWS[phase]])
        lacking = {row for module, rows in NEEDS.items() if not (has(module) and has("torch")) for row in rows}
        for row, line in statuses.items():
            self.assertEqual(line["status"], "skipped" if row in lacking else "passed", line)
        return said

    def test_limits_fit(self):
        for phase, rows in phases.ROWS.items():
            self.assertLessEqual(sum(limit for _, limit, _ in rows), phases.LIMIT_S[phase], phase)
            self.assertEqual(len({name for name, _, _ in rows}), len(rows), phase)

    def test_phase_a(self):
        self.check_phase("A")
        names = {line.get("name") for line in self.lines()}
        for name in ("copy of memory", "rmsnorm_backward 32x32", "tiny-gpt2 head e4m3 16x512x32", "attention d16 T16"):
            self.assertIn(name, names)
        page = (self.out / "summary.md").read_text()
        for title in ("Goals", "Heads", "Kernels", "Products and attention", "Two ways by turns", "Rows"):
            self.assertIn(f"\n## {title}\n", page)
        # A second call has nothing to do; a figure that the machine was writing when it went away does no harm.
        with open(self.out / "results.jsonl", "a", encoding="utf-8") as file:
            file.write('{"phase": "A", "ro')
        self.assertEqual(self.run_phase("A"), (0, ""))

    def test_phase_b(self):
        self.check_phase("B")
        rows = [line for line in self.lines() if line.get("name") == "ingot"]
        self.assertEqual({line["variant"] for line in rows}, {"eager", *phases.VARIANTS})
        for line in rows:
            self.assertGreater(line["tokens_per_s"], 0)
        self.assertIn("\n## Steps\n", (self.out / "summary.md").read_text())

    def test_phase_c(self):
        self.check_phase("C")
        self.assertIn("\n## Losses\n", (self.out / "summary.md").read_text())

    def test_phase_m(self):
        rows = ["ranks-dp-1", "ranks-dp-2", "muon-2"]
        code, said = self.run_phase("M", "--rows", *rows)
        self.assertEqual(code, 0, said)
        self.assertEqual([line["row"] for line in self.lines() if line.get("status") == "passed"], rows)
        muon = [line for line in self.lines() if line.get("name") == "muon"]
        self.assertEqual([(line["model"], line["gpus"], line["matrices"]) for line in muon],
                         [("gpt2-124m", 2, 4), ("llama-1.3b", 2, 4)])
        for line in muon:
            self.assertAlmostEqual(line["ratio"], line["gather_ms"] / line["messages_ms"], delta=0.01 * line["ratio"])
        self.assertIn("\n## Muon's updates on several GPUs\n", (self.out / "summary.md").read_text())

    def test_a_phase_goes_on_where_it_stopped(self):
        self.assertEqual(self.run_phase("A", "--limit", "1")[0], 0)  # no time for any row
        self.assertFalse((self.out / "results.jsonl").exists())
        self.run_phase("Q", "--rows", "doctor")  # what has passed in one phase is not run again in another
        self.run_phase("A", "--rows", "doctor", "tests")
        code, said = self.run_phase("A", "--rows", "doctor", "tests", "head-124m-fp8")
        self.assertEqual(code, 0, said)
        self.assertEqual([line["row"] for line in self.lines() if "status" in line], ["doctor", "tests", "head-124m-fp8"])

    def test_failures_are_said(self):
        (self.programs / "device_bench").unlink()
        (self.programs / "device_bench").write_text('#!/bin/sh\necho \'{"name":"copy of memory","us":1,"gb_s":2,"of_copy":1}\' >"$2"\n'
                                                    "exit 3\n")
        (self.programs / "device_bench").chmod(0o755)
        code, said = self.run_phase("A", "--rows", "kernels")
        self.assertEqual(code, 1, said)
        figure, status = self.lines()
        self.assertEqual(figure["name"], "copy of memory")  # a figure that was measured before the failure is kept
        self.assertEqual((status["status"], status["row"]), ("failed", "kernels"))
        self.assertIn("exit code 3", status["why"])

    def test_a_row_that_hangs_is_ended(self):
        (self.programs / "device_bench").unlink()
        (self.programs / "device_bench").write_text("#!/bin/sh\nsleep 600\n")
        (self.programs / "device_bench").chmod(0o755)
        code, said = self.run_phase("A", "--rows", "kernels", "--limit", "6")
        self.assertEqual(code, 1, said)
        self.assertEqual(self.lines()[-1]["status"], "too long")

    def test_no_gpu_is_said(self):
        (self.programs / "ingot_cuda_tests").unlink()
        (self.programs / "ingot_cuda_tests").write_text("#!/bin/sh\necho no CUDA device\nexit 77\n")
        (self.programs / "ingot_cuda_tests").chmod(0o755)
        code, said = self.run_phase("A")
        self.assertEqual(code, 77, said)
        self.assertIn("no CUDA device", said)


class Summary(unittest.TestCase):
    def test_goals_are_judged_by_the_newest_figures(self):
        def step(model, variant, turn, **figures):
            return {"phase": "B", "row": f"step-{model}", "name": "ingot", "model": model, "variant": variant, "turn": turn,
                    "step_ms": 100, "tokens_per_s": 1e5, "of_datasheet": 0.5, "device_bytes": 2**30, **figures}

        lines = [step("gpt2-124m", "eager", 0, mfu=0.1), step("gpt2-124m", "eager", 1, mfu=0.1),
                 step("gpt2-124m", "eager", 1, mfu=0.7), step("gpt2-124m", "eager", 2, mfu=0.61),
                 step("gpt2-124m", "eager", 3, mfu=0.62),
                 {"phase": "B", "row": "step-gpt2-124m", "name": "ratio", "model": "gpt2-124m", "ratio": 1.2},
                 {"phase": "A", "row": "kernels", "name": "a", "us": 1, "gb_s": 1, "of_copy": 0.9},
                 {"phase": "A", "row": "kernels", "name": "b", "us": 1, "gb_s": 1, "of_copy": 0.84}]
        page = summary.page(lines)
        self.assertIn("| 124M: part of the measured product rate | 0.60 | 0.62 | yes |", page)
        self.assertIn("| 124M: Ingot / PyTorch | 1.25 | 1.20 | no |", page)
        self.assertIn("| slowest memory-bound kernel / copy | 0.85 | 0.84 | no |", page)
        self.assertIn("| 1.3B: FP8 linears / bf16 | 1.20 |  |  |", page)


if __name__ == "__main__":
    unittest.main(verbosity=1)
