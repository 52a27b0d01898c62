#!/usr/bin/env python3
"""Runs every row of the measurements for a GPU (bench/gpu/rows.py) in miniature on the simulated device.

  python3 tests/gpu_rows_test.py BUILD_TESTS_FOLDER

A row may be skipped only for want of torch; then PyTorch's side runs where there is a Python that has it (.ci/run, step hf).
Times and ratios of a simulated device mean nothing and are not looked at."""
import contextlib
import importlib.util
import io
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "bench" / "gpu"))
import machine  # noqa: E402
import rows  # noqa: E402
import summary  # noqa: E402

BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
PROGRAMS = {"ingot": "ingot_simulated_cuda", "ingot_cuda_tests": "simulated_cuda_kernel_test",
            "device_bench": "device_bench_simulated_cuda", "muon_bench": "muon_bench_simulated_cuda"}
NEEDS_TORCH = {"works": {"losses", "torch-gpt2-124m", "torch-llama-1.3b"},
               "numbers": {"losses", "step-gpt2-124m", "step-llama-1.3b"}, "claims": set()}
HAS_TORCH = importlib.util.find_spec("torch") is not None


def names_of(command):
    return [name for lanes in rows.stages_of(command, None, 1) for lane in lanes for name, _, _ in lane]


def limit_s(stages):
    return sum(max(sum(limit for _, limit, _ in lane) for lane in lanes) for lanes in stages)


class RowTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.out, self.programs = self.folder / "out", self.folder / "programs"
        self.programs.mkdir()

    def fake(self, name, text, first="#!/bin/sh"):
        path = self.programs / name
        path.unlink(missing_ok=True)
        path.write_text(f"{first}\n{text}\n")
        path.chmod(0o755)

    def lines(self):
        return [json.loads(line) for line in (self.out / "results.jsonl").read_text().splitlines()]

    def statuses(self):
        return {line["row"]: line["status"] for line in self.lines() if "status" in line}


class Commands(RowTest):
    """run.sh with the programs of the simulated device."""

    def setUp(self):
        super().setUp()
        for name, built in PROGRAMS.items():
            (self.programs / name).symlink_to(BUILD / built)
        self.fake("gpu_probe", """echo '{"kind": "bf16", "status": "accepted"}' >"$2" """)
        self.fake("nccl_one_rank", "echo one rank")

    def run_command(self, command, *more, environment=None):
        words = ["bash", ROOT / "bench" / "gpu" / "run.sh", self.out, command, "--dry", "--programs", self.programs, *more]
        path = f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"
        done = subprocess.run([str(word) for word in words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              env={**os.environ, "PATH": path, **(environment or {})}, check=False)
        return done.returncode, done.stdout

    def check_command(self, command, skipped=()):
        code, said = self.run_command(command)
        log = (self.out / "log.txt").read_text()[-4000:] if (self.out / "log.txt").exists() else ""
        self.assertEqual(code, 0, f"{said}\n{log}")
        skipped = {*skipped, *(() if HAS_TORCH else NEEDS_TORCH[command])}
        self.assertEqual(self.statuses(), {name: "skipped" if name in skipped else "passed" for name in names_of(command)}, said)
        self.assertLessEqual(len(list(self.out.iterdir())), 8)  # a machine that is lent may send back no more
        return (self.out / "summary.md").read_text()

    def test_works(self):
        page = self.check_command("works", skipped=["memcheck"])
        for title in ("Steps", "Losses", "Device tests", "Rows"):
            self.assertIn(f"\n## {title}\n", page)
        self.assertIn("[       OK ] CudaCast.", (self.out / "tests.log").read_text())
        self.assertIn("backward", {span["name"] for span in json.loads((self.out / "gpt2-124m.trace.json").read_text())})
        lines = self.lines()
        self.assertIn({"kind": "bf16", "status": "accepted"}, [line.get("probe") for line in lines])
        self.assertEqual([(line["model"], line["variant"]) for line in lines if line.get("name") == "ingot"],
                         [("llama-1.3b", "eager"), ("gpt2-124m", "eager"), ("gpt2-124m", "graph"), ("gpt2-124m", "fp8")])
        compared = {line["name"] for line in lines if "apart" in line}
        wanted = {f"{model} {compute}, CPU" for model in ("tiny-gpt2", "tiny-llama") for compute in ("f32", "bf16", "fp8")}
        self.assertEqual(compared, wanted | ({"gpt2-124m f32, PyTorch", "gpt2-124m bf16, PyTorch"} if HAS_TORCH else set()))
        if HAS_TORCH:
            self.assertTrue(tarfile.is_tarfile(self.out / "torch-cache.tar.gz"))

    def test_numbers(self):
        with tarfile.open(self.folder / "cache.tar.gz", "w:gz") as file:
            file.add(self.programs / "gpu_probe", "kernel")
        page = self.check_command("numbers")
        for title in ("Goals", "Steps", "Products and attention", "Kernels", "Rows"):
            self.assertIn(f"\n## {title}\n", page)
        lines = self.lines()
        names = {line.get("name") for line in lines}
        for name in ("copy of memory", "product of 64x64x64", "rmsnorm_backward 32x32", "tiny-gpt2 head e4m3 16x512x32",
                     "attention d16 T16"):
            self.assertIn(name, names)
        steps = {(line["model"], line["variant"]) for line in lines if line.get("name") == "ingot"}
        self.assertEqual(steps, {("gpt2-124m", "eager"), ("gpt2-124m", "graph"), ("gpt2-124m", "fp8"), ("llama-1.3b", "eager"),
                                 ("llama-1.3b", "graph"), ("llama-1.3b", "fp8"), ("llama-1b", "eager")})
        if HAS_TORCH:
            self.assertEqual([len(line["turns"]) for line in lines if line.get("name") == "ratio"], [1, 2, 3, 1, 2])

    def test_claims(self):
        page = self.check_command("claims")
        self.assertIn("\n## Steps\n", page)
        variants = {(line["model"], line["variant"]) for line in self.lines() if line.get("name") == "ingot"}
        self.assertEqual(variants, {("hybrid-124m", head) for head in rows.HEADS} | {("gpt2-124m", kind) for kind in ("fp8", "rowwise", "delayed")})
        for line in self.lines():
            if line.get("name") == "ingot":
                self.assertGreater(line["launches"]["kernels"], 0)

    def test_several(self):
        wanted = ["ranks-dp-1", "ranks-dp-2", "muon-2"]
        code, said = self.run_command("several", "--rows", *wanted)
        self.assertEqual(code, 0, said)
        self.assertEqual(self.statuses(), dict.fromkeys(wanted, "passed"))
        muon = [line for line in self.lines() if line.get("name") == "muon"]
        self.assertEqual([(line["model"], line["gpus"], line["matrices"]) for line in muon],
                         [("gpt2-124m", 2, 4), ("llama-1.3b", 2, 4)])
        for line in muon:
            self.assertAlmostEqual(line["ratio"], line["gather_ms"] / line["messages_ms"], delta=0.01 * line["ratio"])
        self.assertIn("\n## Muon's updates on several GPUs\n", (self.out / "summary.md").read_text())

    def test_every_part_of_device_bench_runs(self):
        figures = self.folder / "figures.jsonl"
        subprocess.run([self.programs / "device_bench", "--tiny", "--json", figures, "--model", "tiny-gpt2"],
                       stdout=subprocess.DEVNULL, check=True)
        names = [json.loads(line)["name"] for line in figures.read_text().splitlines()]
        self.assertIn("attention mask d16 T16 docs", names)
        self.assertIn("tiny-gpt2 product with bias", names)
        self.assertFalse([name for name in names if "tiny-llama" in name])

    def test_a_machine_without_a_gpu_is_said(self):
        self.fake("ingot_cuda_tests", "echo no CUDA device: there is no driver; exit 77")
        code, said = self.run_command("works")
        self.assertEqual(code, 77, said)
        self.assertIn("nothing was measured: device: no CUDA device: there is no driver", said)
        self.assertEqual(self.statuses(), {"libraries": "passed", "doctor": "passed", "device": "skipped"})

    def test_a_doctor_that_hangs_ends_the_command(self):
        self.fake("ingot", "sleep 600")
        with contextlib.ExitStack() as stack:
            stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
            said = stack.enter_context(contextlib.redirect_stderr(io.StringIO()))
            m = machine.Machine("works", self.out, self.programs, 60, is_dry=True)
            self.assertEqual(rows.run_command(m, [[[("doctor", 0.5, rows.doctor)]], [[("tests", 1, rows.device_tests)]]]), 1)
        self.assertIn("nothing was measured: doctor: ended after", said.getvalue())
        self.assertEqual(self.statuses(), {"doctor": "too long"})

    def test_the_torch_cache_of_an_earlier_call_is_unpacked(self):
        cache = self.folder / "cache.tar.gz"
        with tarfile.open(cache, "w:gz") as file:
            file.add(self.programs / "gpu_probe", "kernel")
        m = machine.Machine("numbers", self.out, self.programs, 60, is_dry=True, torch_cache=cache)
        self.assertTrue((m.torch_cache / "kernel").exists())


class Limits(RowTest):
    """What a late, hanging or failing program does to its row and to the others. The programs are scripts."""

    def setUp(self):
        super().setUp()
        self.fake("ingot", 'case "$1" in --version) echo 0;; *) echo \'{"step_ms": 1, "tokens_per_s": 2, "gflops": 3, "engine": "e", '
                           '"loss_last": 4, "startup_s": 5, "kernels": {"attention_forward": "cuDNN", '
                           '"products": {"bias": {"taken": 0, "refused": 1, "slower": 0}}}}\';; esac')
        torch, self.torch = machine.TORCH[1], self.folder / "torch.py"
        machine.TORCH[1] = self.torch
        self.addCleanup(machine.TORCH.__setitem__, 1, torch)

    def run_lanes(self, *lanes, command="numbers"):
        self.m = machine.Machine(command, self.out, self.programs, 60, is_dry=True)
        with contextlib.redirect_stdout(io.StringIO()):
            return machine.run_lanes(self.m, lanes)

    def assert_dead(self, pid):
        for _ in range(50):  # init may need a moment to reap it
            stat = pathlib.Path(f"/proc/{pid}/stat")
            if not stat.exists() or stat.read_text().split(")")[1].split()[0] == "Z":
                return
            time.sleep(0.1)
        self.fail(f"process {pid} lives")

    def test_limits_fit(self):
        for command, limit in rows.LIMIT_S.items():
            self.assertLessEqual(limit_s(rows.stages_of(command, None, 1)), limit, command)
            self.assertEqual(len(set(names_of(command))), len(names_of(command)), command)

    def test_a_rival_that_never_answers_is_killed_and_the_next_row_runs(self):
        pids = self.folder / "pids"
        self.torch.write_text(f"import os, subprocess, time\nchild = subprocess.Popen(['sleep', '600'])\n"
                              f"open({str(pids)!r}, 'w').write(f'{{os.getpid()}} {{child.pid}}')\ntime.sleep(600)\n")
        statuses = self.run_lanes([("step-x", 2, rows.by_turns("gpt2-124m", 3)), ("next", 5, lambda row: row.write(name="next"))])
        self.assertEqual(statuses, {"step-x": "too long", "next": "passed"})
        for pid in pids.read_text().split():
            self.assert_dead(pid)
        figures = [line for line in self.lines() if line.get("name") == "ingot"]
        self.assertEqual([line.get("turn") for line in figures], [0])
        self.assertEqual((figures[0]["attention_forward"], figures[0]["refused"]), ("cuDNN", ["bias"]))
        self.assertIn("| gpt2-124m | eager | 1.00 |", (self.out / "summary.md").read_text())  # turn 0 is all there is

    def test_a_rival_that_stops_answering_leaves_the_ratio_of_its_turns(self):
        self.torch.write_text('import json, time\nprint(json.dumps({"device_bytes": 1}), flush=True)\ninput()\n'
                              'print(json.dumps({"tokens_per_s": 4, "tflops": 1, "step_ms": 2}), flush=True)\ntime.sleep(600)\n')
        statuses = self.run_lanes([("step-x", 3, rows.by_turns("gpt2-124m", 3))])
        self.assertEqual(statuses, {"step-x": "too long"})
        self.assertEqual([line["turns"] for line in self.lines() if line.get("name") == "ratio"], [[0.5]])
        self.assertIn("| 124M: Ingot / PyTorch | 1.25 | 0.50 | no |", (self.out / "summary.md").read_text())

    def test_a_shard_that_hangs_leaves_its_output(self):
        self.fake("ingot_cuda_tests", 'echo "[ RUN      ] Suite.Test$GTEST_SHARD_INDEX"\n[ "$GTEST_SHARD_INDEX" != 3 ] || sleep 600\n'
                                      'echo "[       OK ] Suite.Test$GTEST_SHARD_INDEX (7 ms)"')
        statuses = self.run_lanes([("tests", 2, rows.device_tests)])
        self.assertEqual(statuses, {"tests": "too long"})
        self.assertIn("[ RUN      ] Suite.Test3\n", (self.out / "tests.log").read_text())
        figures, status = self.lines()
        self.assertEqual((figures["passed"], figures["failed"], figures["unfinished"]), (5, [], ["Suite.Test3"]))
        self.assertEqual(status["why"], "1 of 6 processes did not end: Suite.Test3")
        self.assertIn("| 5 |  | Suite.Test3 |", (self.out / "summary.md").read_text())

    def test_failed_tests_run_once_more_under_memcheck(self):
        self.fake("ingot_cuda_tests", 'echo "$*" >>"$(dirname "$0")/called"\n'
                                      '[ "$GTEST_SHARD_INDEX" = 2 ] || exit 0\necho "[ RUN      ] A/Suite.Test/bf16_2x3"\n'
                                      'echo "[  FAILED  ] A/Suite.Test/bf16_2x3, where GetParam() = 1 (7 ms)"\nexit 1')
        self.fake("compute-sanitizer", 'shift 4; "$@"')
        path = os.environ["PATH"]
        os.environ["PATH"] = f"{self.programs}:{path}"
        self.addCleanup(os.environ.__setitem__, "PATH", path)
        memcheck = next(lane for lanes in rows.STAGES["works"] for lane in lanes if lane[0][0] == "tests")[1]
        self.run_lanes([("tests", 5, rows.device_tests), (memcheck[0], 5, memcheck[2])])
        self.assertEqual(self.lines()[0]["failed"], ["A/Suite.Test/bf16_2x3"])
        self.assertEqual((self.programs / "called").read_text().splitlines()[-1],
                         "--gtest_filter=A/Suite.Test/bf16_2x3 --gtest_brief=1")

    def test_the_summary_exists_after_each_row(self):
        seen = []

        def look(row):
            seen.append((self.out / "summary.md").read_text())
        self.run_lanes([("one", 5, lambda row: row.write(name="x")), ("two", 5, look), ("three", 5, look)])
        self.assertIn("| one | passed |", seen[0])
        self.assertIn("| two | passed |", seen[1])

    def test_figures_before_a_failure_are_kept(self):
        self.fake("device_bench", """echo '{"name":"copy of memory","us":1,"gb_s":2,"of_copy":1}' >"$2"; echo the reason; exit 3""")
        self.assertEqual(self.run_lanes([("kernels", 5, rows.device_bench("kernels"))]), {"kernels": "failed"})
        figure, status = self.lines()
        self.assertEqual(figure["name"], "copy of memory")
        self.assertIn("exit code 3", status["why"])
        self.assertIn("the reason", status["why"])

    def test_a_step_that_fails_runs_again_with_the_libraries_own_words(self):
        self.fake("ingot", '[ "$1" = --version ] || { echo "log level $CUBLASLT_LOG_LEVEL"; exit 1; }')
        self.assertEqual(self.run_lanes([("step-x", 5, rows.step("gpt2-124m", steps=4))], command="works"), {"step-x": "failed"})
        self.assertIn("log level 2\n", (self.out / "log.txt").read_text())

    def test_lanes_run_beside_each_other_and_a_surprise_ends_one_row_only(self):
        meeting = threading.Barrier(2, timeout=5)
        statuses = self.run_lanes([("a", 5, lambda row: meeting.wait()), ("b", 5, lambda row: row.no_such_thing)],
                                  [("c", 5, lambda row: meeting.wait()), ("d", 5, lambda row: None)])
        self.assertEqual(statuses, {"a": "passed", "b": "failed", "c": "passed", "d": "passed"})

    def test_a_signal_ends_programs_and_keeps_what_was_measured(self):
        pid = self.folder / "pid"
        self.fake("device_bench", f'echo \'{{"name":"x","us":1,"gb_s":2,"of_copy":1}}\' >"$2"; echo $$ >{pid}; sleep 600')

        def cut():
            while not pid.exists() or not pid.read_text():
                time.sleep(0.05)
            self.m.cut()
        thread = threading.Thread(target=cut)
        thread.start()
        statuses = self.run_lanes([("kernels", 50, rows.device_bench("kernels")), ("next", 5, lambda row: None)])
        thread.join()
        self.assertEqual(statuses, {"kernels": "too long"})  # and nothing after it
        self.assert_dead(pid.read_text().strip())
        self.assertEqual(self.lines()[0]["name"], "x")

    def test_a_cache_that_is_too_large_is_left_out(self):
        self.torch.write_text("")
        m = machine.Machine("works", self.out, self.programs, 60, is_dry=True)
        m.torch_cache.mkdir()
        (m.torch_cache / "code").write_bytes(os.urandom(rows.CACHE_BYTES + 1))
        with contextlib.redirect_stdout(io.StringIO()):
            statuses = machine.run_lanes(m, [[("torch", 30, rows.torch_cache("gpt2-124m"))]])
        self.assertEqual(statuses, {"torch": "failed"})
        self.assertFalse((self.out / "torch-cache.tar.gz").exists())


class Pack(RowTest):
    """bench/gpu/check_pack.sh, which pack.sh runs at its end."""

    def check(self):
        return subprocess.run(["bash", ROOT / "bench" / "gpu" / "check_pack.sh", self.folder / "pack"], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, check=False)

    def test_a_library_that_is_not_in_the_pack_is_named(self):
        (self.folder / "pack" / "lib").mkdir(parents=True)
        shutil.copy("/bin/bash", self.folder / "pack" / "program")  # needs libtinfo
        done = self.check()
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertRegex(done.stdout, r"program needs libtinfo\.so\.\d+, which is neither in .*/lib nor a part of glibc")
        needed = subprocess.run(["ldd", "/bin/bash"], stdout=subprocess.PIPE, text=True, check=True).stdout
        library = next(line.split()[2] for line in needed.splitlines() if "libtinfo" in line)
        shutil.copy(library, self.folder / "pack" / "lib")
        self.assertEqual(self.check().returncode, 0, self.check().stdout)

    def test_a_symbol_of_a_newer_c_library_is_named(self):
        source = self.folder / "new.s"
        source.write_text('.globl main\nmain: call newer\n.symver newer, newer@GLIBC_2.99\n.section .note.GNU-stack,"",@progbits\n')
        stub = self.folder / "stub.c"
        stub.write_text("void newer(void) {}\n")
        (self.folder / "map").write_text("GLIBC_2.99 { newer; };\n")
        (self.folder / "pack" / "lib").mkdir(parents=True)
        library = self.folder / "libc_stub.so"
        subprocess.run(["cc", "-shared", "-nostdlib", "-Wl,-soname,libm.so.6", f"-Wl,--version-script={self.folder / 'map'}", stub,
                        "-o", library], check=True)
        subprocess.run(["cc", source, library, "-o", self.folder / "pack" / "program"], check=True)
        done = self.check()
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("program needs GLIBC_2.99, newer than GLIBC_2.39", done.stdout)


class Summary(unittest.TestCase):
    def test_goals_are_judged_by_the_turns_beside_pytorch(self):
        def step(model, variant, turn, **figures):
            return {"command": "numbers", "row": f"step-{model}", "name": "ingot", "model": model, "variant": variant, "turn": turn,
                    "step_ms": 100, "tokens_per_s": 1e5, "of_datasheet": 0.5, "device_bytes": 2**30, **figures}

        lines = [{"command": "numbers", "row": "rates", "name": "product of 8192x8192x8192", "us": 1, "tflop_s": 800},
                 step("gpt2-124m", "eager", 0, tflops=80), step("gpt2-124m", "eager", 1, tflops=80),
                 step("gpt2-124m", "eager", 1, tflops=560), step("gpt2-124m", "eager", 2, tflops=488),
                 step("gpt2-124m", "eager", 3, tflops=496, attention_forward="cuDNN", attention_backward="own", refused=["a", "b"]),
                 {"command": "numbers", "row": "step-gpt2-124m", "name": "ratio", "model": "gpt2-124m", "ratio": 1.2},
                 {"command": "numbers", "row": "kernels", "name": "a", "us": 1, "gb_s": 1, "of_copy": 0.9},
                 {"command": "numbers", "row": "kernels", "name": "b", "us": 1, "gb_s": 1, "of_copy": 0.84}]
        page = summary.page(lines)
        self.assertIn("| 124M: part of the measured product rate | 0.60 | 0.62 | yes |", page)
        self.assertIn("| 124M: Ingot / PyTorch | 1.25 | 1.20 | no |", page)
        self.assertIn("| slowest memory-bound kernel / copy | 0.85 | 0.84 | no |", page)
        self.assertIn("| 1.3B: FP8 linears / bf16 | 1.20 |  |  |", page)
        self.assertIn("| gpt2-124m | eager | cuDNN | own | a; b |  |", page)
        probe = {"command": "works", "row": "probe", "probe": {"part": "rowwise", "error": "none", "failed": True}}
        self.assertIn("| rowwise | error: none |", summary.page([probe]))


if __name__ == "__main__":
    unittest.main(verbosity=1)
