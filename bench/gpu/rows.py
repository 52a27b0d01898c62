#!/usr/bin/env python3
"""Measures Ingot on a GPU in phases that each fit into one loan of a machine; bench/gpu/run.sh calls it.

  python3 phases.py OUT PHASE [--programs FOLDER] [--dry] [--rows NAME...] [--limit SECONDS]

| phase | what it measures | at most |
|---|---|---|
| A | device tests; every kernel, every product and attention of the three models; heads; memory and race checkers | 480 s |
| B | steps of 124M, 350M and 1.3B: eager beside PyTorch by turns, then as graphs and in FP8 | 570 s |
| C | losses beside PyTorch's, CPU and GPU, determinism, the hybrid recipe, fused products and masks, more checkers | 360 s |
| M | several GPUs: 124M and 1.3B on 1, 2, 4 and 8 in every layout, and the messages of Muon's updates | 570 s |
| Q | the rows of A, B and C that matter most, for a machine that is at hand for a quarter of an hour only | 570 s |

Every figure is a line of OUT/results.jsonl the moment it is measured. A phase that was cut short goes on where it stopped
when it is called again with the same OUT: rows that have passed with the same program on the same device are not run again.
OUT/summary.md is made of all lines; OUT/log.txt has the programs' output. --dry runs every row in miniature, with programs
built for the simulated device, and has ten times as long for each. Exits with 1 if a row failed, with 77 if there is no GPU."""
import argparse
import datetime
import json
import os
import pathlib
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import summary

HERE = pathlib.Path(__file__).resolve().parent
LIMIT_S = {"A": 480, "B": 570, "C": 360, "M": 570, "Q": 570}
DRY_PATIENCE = 10  # a dry run shares a slow machine with others
MODELS = ("gpt2-124m", "llama-350m", "llama-1.3b")
MODELS_OF_RANKS = ("gpt2-124m", "llama-1.3b")
DATASHEET_TFLOPS = 989  # dense bf16 of an H100 or H200 (SXM), NVIDIA's data sheet
# Only a few tests of every kernel: the checkers slow kernels down more than tenfold.
SMALL_TESTS = ":".join([
    "Sizes/CudaNorm.*/*_5x257_*", "Sizes/CudaNorm.*/*_5x768_*", "Sizes/CudaActivation.*/bf16_2x520", "Shapes/CudaHeads.*",
    "Sizes/CudaEmbedding.*/f32_2x5*", "Shapes/CudaAttention.*", "CudaDropout.*", "CudaCast.*", "Kinds/CudaCrossEntropy.*",
    "Formats/CudaFp8.*", "CudaUpdate/*", "CudaResidualAdd.*", "CudaKahan.*", "CudaSwap.*", "CudaBf16Masters.*",
    "CudaLossSums.*", "CudaVerdict.*", "CudaGraph.*", "*CudaMatmul*", "*LinearCrossEntropyFp8*", "*CudaLinear*"])
DRY_MODEL = """[model]
layers = 1
heads = 2
width = 32
ffn = 64
context = 16
vocab = 512
norm = "{norm}"
positions = "{positions}"
mlp = "{mlp}"
bias = {bias}
[train]
batch_size = 2
device = "cuda"
[precision]
compute = "bf16"
[activations]
policy = "auto"
[head]
loss_dtype = "bf16_logits"
"""


class Failed(Exception):
    """A row's program failed, or its figures are wrong."""


class Skipped(Exception):
    """A row cannot be measured on this machine."""


class TooLong(Exception):
    """A row has used up its time."""


def last_json(text):
    lines = [line for line in text.splitlines() if line.startswith("{")]
    if not lines:
        raise Failed(f"no JSON in {text[-200:]!r}")
    return json.loads(lines[-1])


class Machine:
    """The programs, the output folder and the time that is left."""

    def __init__(self, options):
        self.out, self.is_dry = options.out, options.dry
        self.programs, self.phase = options.programs.resolve(), options.phase
        self.out.mkdir(parents=True, exist_ok=True)
        self.results, self.log = self.out / "results.jsonl", self.out / "log.txt"
        self.work = pathlib.Path(tempfile.mkdtemp(prefix="ingot-gpu-"))
        self.end = time.monotonic() + options.limit
        self.row, self.row_end = "", self.end
        self.identity = {}
        self.steps_for = {}  # steps that fill the wanted time, by configuration

    def program(self, name):
        return str(self.programs / name)

    def write(self, **figures):
        line = {"phase": self.phase, "row": self.row, **figures, **self.identity}
        with open(self.results, "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def lines(self):
        if not self.results.exists():
            return []
        lines = []
        for text in self.results.read_text(encoding="utf-8").splitlines():
            try:
                lines.append(json.loads(text))
            except ValueError:  # the line that was being written when the machine went away
                continue
        return lines

    def left_s(self):
        return min(self.row_end, self.end) - time.monotonic()

    def start(self, command, **pipes):
        with open(self.log, "a", encoding="utf-8") as log:
            log.write(f"\n=== {self.row}: {' '.join(map(str, command))}\n")
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        if "torch_baseline.py" in " ".join(map(str, command)):  # PyTorch finds its own libraries
            environment["LD_LIBRARY_PATH"] = os.environ.get("INGOT_GIVEN_LIBRARY_PATH", "")
            environment["TORCHINDUCTOR_CACHE_DIR"] = str(self.work / "inductor")
        return subprocess.Popen(list(map(str, command)), text=True, start_new_session=True, env=environment, **pipes)

    def stop(self, process):
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()

    def run(self, command, watched=None):
        """Runs a command to its end and returns its stdout. `watched`: a file of JSON lines that become figures as they
        appear. Raises TooLong, Skipped (exit code 77) and Failed."""
        stdout = self.work / "stdout"
        begin = time.monotonic()
        with open(stdout, "w", encoding="utf-8") as out, open(self.log, "a", encoding="utf-8") as log:
            process = self.start(command, stdout=out, stderr=log)
            seen = 0
            while True:
                status = process.poll()
                seen += self.take_figures(watched, seen)
                if status is not None:
                    break
                if self.left_s() <= 0:
                    self.stop(process)
                    raise TooLong(f"ended after {time.monotonic() - begin:.0f} s")
                time.sleep(0.05)
        text = stdout.read_text(encoding="utf-8", errors="replace")
        with open(self.log, "a", encoding="utf-8") as log:
            log.write(text)
        if status == 77:
            raise Skipped((text.strip().splitlines() or ["exit code 77"])[-1])
        if status:
            raise Failed(f"exit code {status}; log.txt has the output")
        return text

    def take_figures(self, watched, seen):
        if not watched or not watched.exists():
            return 0
        whole = watched.read_text(encoding="utf-8").split("\n")[:-1]
        for line in whole[seen:]:
            self.write(**json.loads(line))
        return len(whole) - seen

    def model_file(self, model):
        if not self.is_dry:
            return HERE / f"{model}.toml"
        path = self.work / f"{model}.toml"
        is_gpt = model.startswith("gpt2")
        path.write_text(DRY_MODEL.format(norm="layernorm" if is_gpt else "rmsnorm", bias="true" if is_gpt else "false",
                                         positions="learned" if is_gpt else "rope", mlp="gelu_tanh" if is_gpt else "swiglu"))
        return path


# Rows. Each takes the machine and writes its figures.

def doctor(m):
    found = json.loads(m.run([m.program("ingot"), "doctor", "--json"]))
    m.write(name="doctor", rows={row["name"]: row["value"] for row in found["rows"]}, notes=found.get("notes", []))


def device_tests(m):
    command = [m.program("ingot_cuda_tests"), "--gtest_brief=1"]
    if m.is_dry:
        command.append("--gtest_filter=CudaCast.*")
    text = m.run(command)
    passed = re.search(r"(\d+) tests? from .*ran|PASSED\s*\]\s*(\d+) test", text)
    m.write(name="tests", passed=int(passed.group(1) or passed.group(2)) if passed else None)


def device_bench(part):
    def measure(m):
        figures = m.work / f"{part}.jsonl"
        m.run([m.program("device_bench"), "--json", figures, *(["--tiny"] if m.is_dry else []), part], watched=figures)
    return measure


def head(width, vocab, tokens, precision):
    def measure(m):
        sizes = (32, 64, 16) if m.is_dry else (width, vocab, tokens)
        found = json.loads(m.run([m.program("ingot"), "bench", "head", "--device", "cuda", "--precision", precision, "--width",
                                  sizes[0], "--vocab", sizes[1], "--tokens", sizes[2], "--json"]))
        for row in found["rows"]:
            m.write(name=row["kind"], ms=row["ms"], scratch_bytes=row["scratch_bytes"], loss=row["loss"])
    return measure


def checker(tool):
    def check(m):
        sanitizer = shutil.which("compute-sanitizer") or next(
            (str(p) for p in pathlib.Path("/usr/local").glob("cuda*/bin/compute-sanitizer")), None)
        if m.is_dry:
            command = [m.program("ingot_cuda_tests"), "--gtest_filter=CudaSwap.*"]
        elif sanitizer:
            command = [sanitizer, "--tool", tool, "--error-exitcode", "9", m.program("ingot_cuda_tests"),
                       f"--gtest_filter={SMALL_TESTS}"]
        else:
            raise Skipped("there is no compute-sanitizer")
        m.run([*command, "--gtest_brief=1"])
    return check


def bench_step(m, source, settings, seconds=5, steps=None):
    """Times steps, as many as take about `seconds`, and returns the figures of `ingot bench step`. The first call for a
    configuration times 8 steps, because it does not know how long they take."""
    command = [m.program("ingot"), "bench", "step", source, "--json"]
    for key, value in settings.items():
        command += ["--set", f"{key}={value}"]
    key = (str(source), json.dumps(settings))
    steps = 2 if m.is_dry else steps or m.steps_for.get(key, 8)
    found = last_json(m.run([*command, "--steps", steps]))
    m.steps_for[key] = max(8, int(seconds * 1e3 / found["step_ms"]))
    tflops = found["mfu"] * found["peak_gflops"] * 1e-3 if found["mfu"] else None
    return {"step_ms": found["step_ms"], "tokens_per_s": found["tokens_per_s"], "mfu": found["mfu"], "tflops": tflops,
            "of_datasheet": tflops / DATASHEET_TFLOPS if tflops else None, "peak_tflops": found["peak_gflops"] * 1e-3,
            "device_bytes": found.get("device_bytes"), "engine": found["engine"], "loss": found["loss_last"]}


VARIANTS = {
    "graph": {"train.graph": "true"},
    "fp8-tensorwise": {"precision.fp8": "tensorwise"},
    "fp8-rowwise": {"precision.fp8": "rowwise"},
}


def step_variant(model, variant):
    def measure(m):
        settings = dict(VARIANTS[variant])
        m.write(name="ingot", model=model, variant=variant, **bench_step(m, m.model_file(model), settings))
    return measure


class Rival:
    """PyTorch with a compiled model, in a process of its own that trains when it is told to."""

    def __init__(self, m, model):
        self.m = m
        self.process = m.start([sys.executable, HERE / "torch_baseline.py", "serve", model, *(["--dry"] if m.is_dry else [])],
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=open(m.log, "a", encoding="utf-8"))
        self.first = self.read()

    def read(self):
        line = self.read_line()
        if not line:
            status = self.process.wait()
            raise Skipped("there is no torch that sees the device") if status == 77 else Failed(f"torch: exit code {status}")
        return json.loads(line)

    def read_line(self):
        os.set_blocking(self.process.stdout.fileno(), False)
        text = ""
        while not text.endswith("\n"):
            piece = self.process.stdout.readline()
            text += piece or ""
            if not piece and self.process.poll() is not None:
                return text
            if self.m.left_s() <= 0:
                raise TooLong("torch did not answer in time")
            if not piece:
                time.sleep(0.02)
        return text

    def train(self, seconds):
        self.process.stdin.write(f"run {seconds}\n")
        self.process.stdin.flush()
        return self.read()


def step_by_turns(model):
    """Ingot and PyTorch by turns; the ratio is the median of the turns' ratios."""
    def measure(m):
        turns, seconds = (2, 0.05) if m.is_dry else (3, 5)
        source = m.model_file(model)
        ours = bench_step(m, source, {}, seconds)  # chooses kernels and tells how many steps to time
        m.write(name="ingot", model=model, variant="eager", turn=0, **ours)
        rival = None
        try:
            rival = Rival(m, model)
            m.write(name="torch start", model=model, **rival.first)
            ratios = []
            for turn in range(1, turns + 1):
                ours = bench_step(m, source, {}, seconds)
                m.write(name="ingot", model=model, variant="eager", turn=turn, **ours)
                theirs = rival.train(seconds)
                m.write(name="torch", model=model, turn=turn, device_bytes=rival.first["device_bytes"],
                        of_datasheet=theirs["tflops"] / DATASHEET_TFLOPS, **theirs)
                ratios.append(ours["tokens_per_s"] / theirs["tokens_per_s"])
            m.write(name="ratio", model=model, ratio=statistics.median(ratios), turns=ratios)
        finally:
            if rival:
                m.stop(rival.process)
    return measure


def parity(m):
    found = m.work / "parity.json"
    tiny = ["model.layers=1", "model.width=32", "model.heads=2", "model.context=16", "train.batch_size=1",
            "eval.max_tokens=64"]
    small = ["--steps", 2, *(word for key in tiny for word in ("--set", key))] if m.is_dry else []
    m.run([sys.executable, HERE / "parity.py", m.program("ingot"), "--json", found, "--out", m.work / "parity", *small])
    for row in json.loads(found.read_text()):
        m.write(name=f"{row['model']} {row['compute']}", apart=row["apart"], limit=row["limit"], steps=row["steps"])


def write_phrases(path, vocab, tokens):
    """Writes 16-bit tokens: phrases of 8 tokens drawn by Zipf's law, so that a model has something to learn."""
    import numpy
    random = numpy.random.default_rng(3)
    phrases = random.integers(0, vocab, (4096, 8)).astype(numpy.uint16)
    chances = 1 / numpy.arange(1, len(phrases) + 1)
    drawn = random.choice(len(phrases), tokens // 8, p=chances / chances.sum())
    phrases[drawn].reshape(-1).tofile(path)


def losses_beside_torch(m):
    """Trains GPT-2 124M from PyTorch's weights on the same windows in both and compares the losses of all steps."""
    try:
        import numpy  # noqa: F401, needed by write_phrases
    except ImportError:
        raise Skipped("there is no numpy") from None
    steps, batch, context, vocab = (4, 2, 16, 512) if m.is_dry else (200, 64, 1024, 50304)
    folder = m.work / "losses"
    folder.mkdir(exist_ok=True)
    write_phrases(folder / "train.bin", vocab, 40 * batch * context)
    write_phrases(folder / "val.bin", vocab, 4 * batch * context)
    fields = dict(layers=12, heads=12, width=768, ffn=3072, context=context, vocab=vocab, norm="layer_norm",
                  positions="learned", mlp="gelu_tanh", has_bias=True)
    if m.is_dry:
        fields.update(layers=1, heads=2, width=32, ffn=64)
    rate = 3e-4
    (folder / "model.json").write_text(json.dumps({"model": fields, "batch": batch, "seed": 11, "rate": rate}))
    torch = [sys.executable, HERE / "torch_baseline.py", "losses", folder, "--steps", steps]
    theirs = last_json(m.run([*torch, *(["--dry"] if m.is_dry else [])]))["losses"]
    command = [m.program("ingot"), "train", "--init", folder / "init", "--data", f"nanogpt:{folder}", "--out", folder / "run"]
    for key, value in {"train.steps": steps, "train.batch_size": batch, "train.seed": 11, "train.device": "cuda",
                       "precision.compute": "bf16", "optimizer.lr": rate, "optimizer.beta2": 0.95, "schedule.kind": "constant",
                       "schedule.warmup_steps": 0, "eval.every": 0, "sample.count": 0}.items():
        command += ["--set", f"{key}={value}"]
    m.run(command)
    rows = [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]
    ours = [row["loss"] for row in rows if "loss" in row]
    if len(ours) != steps or len(theirs) != steps:
        raise Failed(f"{len(ours)} and {len(theirs)} losses of {steps} steps")
    apart, limit = max(abs(a - b) / b for a, b in zip(ours, theirs)), 1e-2
    m.write(name="losses", steps=steps, apart=apart, limit=limit, first=[ours[0], theirs[0]], last=[ours[-1], theirs[-1]])
    if not apart <= limit:
        raise Failed(f"losses are {apart:.1e} apart, more than {limit:.0e}")


def deterministic(m):
    """Two runs give the same bits, and what that costs."""
    source = m.model_file("gpt2-124m")
    rows = [bench_step(m, source, {"train.deterministic": "true"}, steps=8) for _ in range(2)]
    m.write(name="deterministic", losses=[row["loss"] for row in rows], step_ms=rows[1]["step_ms"])
    if rows[0]["loss"] != rows[1]["loss"]:
        raise Failed(f"losses differ: {rows[0]['loss']!r} and {rows[1]['loss']!r}")


def hybrid(graph):
    def measure(m):
        settings = {"train.device": "cuda", "train.batch_size": 16, "train.grad_accum": 4, "train.graph": graph}
        source = "hybrid-124m"
        if m.is_dry:
            source = "hybrid-124m-tiny"
            settings.update({"model.layers": 1, "model.width": 32, "model.heads": 2, "model.context": 16, "train.batch_size": 2,
                             "train.grad_accum": 2, "model.vocab": 512})
        m.write(name="ingot", model="hybrid-124m", variant="graph" if graph == "true" else "eager",
                **bench_step(m, source, settings))
    return measure


def on_gpus(m, gpus, program):
    """Returns the words that start a program on several GPUs."""
    if not shutil.which("mpirun"):
        raise Skipped("there is no mpirun")
    if not m.is_dry and gpu_count() < gpus:
        raise Skipped(f"{gpu_count()} GPUs")
    if not os.path.exists(m.program(program)):
        raise Skipped(f"there is no {program}, which builds with MPI have")
    return ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", gpus, m.program(program)]


def ranks(layout, gpus):
    """Steps of 124M and 1.3B on several GPUs in one layout, and how long ranks waited for one another."""
    def measure(m):
        for model in MODELS_OF_RANKS:
            found = last_json(m.run([*on_gpus(m, gpus, "ingot"), "bench", "parallel", m.model_file(model), "--set",
                                     f"parallel.{layout}={gpus}", "--steps", 2 if m.is_dry else 10, "--json"]))
            waits = {}
            for operation in found["operations"]:
                waits[operation["rank"]] = waits.get(operation["rank"], 0) + operation["wait_s"]
            steps = 1 + max((operation["step"] for operation in found["operations"]), default=0)
            m.write(name=layout, model=model, gpus=gpus, step_ms=found["step_s"] * 1e3,
                    waited_ms=max(waits.values(), default=0) / steps * 1e3)
    return measure


def muon_messages(gpus):
    """Muon's updates of 124M and 1.3B on replicas: directions in one gather per round, and in one message per matrix."""
    def measure(m):
        text = m.run([*on_gpus(m, gpus, "muon_bench"), *(["--tiny"] if m.is_dry else []), *MODELS_OF_RANKS])
        found = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
        if len(found) != len(MODELS_OF_RANKS):
            raise Failed(f"{len(found)} figures of {len(MODELS_OF_RANKS)} models")
        for figures in found:
            m.write(name="muon", gpus=gpus, **figures)
    return measure


def gpu_count():
    try:
        done = subprocess.run(["nvidia-smi", "-L"], stdout=subprocess.PIPE, text=True, check=False)
    except OSError:
        return 0
    return len([line for line in done.stdout.splitlines() if line.startswith("GPU")])


# Per phase: name, seconds at most, what it does. A phase's limits add up to no more than its own.
ROWS = {
    "A": [("doctor", 15, doctor), ("tests", 90, device_tests), ("kernels", 40, device_bench("kernels")),
          ("products", 60, device_bench("products")), ("attention", 45, device_bench("attention")),
          *((f"head-{name}-{p}", 20, head(width, vocab, tokens, p)) for name, width, vocab, tokens in (
              ("124m", 768, 50304, 65536), ("1.3b", 2048, 32000, 16384)) for p in ("bf16", "fp8")),
          ("memcheck", 75, checker("memcheck")), ("racecheck", 75, checker("racecheck"))],
    "B": [row for model in MODELS for row in (
        (f"step-{model}", 125, step_by_turns(model)), *((f"step-{model}-{v}", 21, step_variant(model, v)) for v in VARIANTS))],
    "C": [("losses-124m", 110, losses_beside_torch), ("parity", 80, parity), ("deterministic", 20, deterministic),
          ("hybrid-eager", 20, hybrid("false")), ("hybrid-graph", 20, hybrid("true")), ("fused", 20, device_bench("fused")),
          ("initcheck", 45, checker("initcheck")), ("synccheck", 45, checker("synccheck"))],
    "M": [*((f"ranks-{layout}-{gpus}", 38, ranks(layout, gpus)) for gpus in (1, 2, 4, 8)
            for layout in (("dp",) if gpus == 1 else ("dp", "fsdp", "tp", "pp"))),
          *((f"muon-{gpus}", 25, muon_messages(gpus)) for gpus in (2, 4, 8))],
}
MOST_IMPORTANT = ("doctor", "tests", "step-gpt2-124m", "step-gpt2-124m-graph", "step-gpt2-124m-fp8-tensorwise", "step-llama-1.3b",
                  "step-llama-1.3b-graph", "step-llama-1.3b-fp8-tensorwise", "losses-124m")
ROWS["Q"] = [next(row for phase in "ABC" for row in ROWS[phase] if row[0] == name) for name in MOST_IMPORTANT]


def run_row(m, name, limit_s, measure):
    m.row, m.row_end = name, time.monotonic() + limit_s
    begin, words = time.monotonic(), ""
    try:
        measure(m)
        status = "passed"
    except (Skipped, TooLong, Failed) as error:
        status, words = {Skipped: "skipped", TooLong: "too long", Failed: "failed"}[type(error)], str(error)
    except (OSError, ValueError, KeyError, TypeError) as error:  # the program's output was not what it should be
        status, words = "failed", f"{type(error).__name__}: {error}"
    seconds = time.monotonic() - begin
    m.write(status=status, seconds=round(seconds, 1), **({"why": words} if words else {}))
    print(f"{m.phase} {name:<28} {status:<8} {seconds:6.1f} s  {words}", flush=True)
    return status


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("phase", choices=LIMIT_S)
    parser.add_argument("--programs", type=pathlib.Path, default=HERE, help="folder with ingot, ingot_cuda_tests, device_bench")
    parser.add_argument("--dry", action="store_true", help="run every row in miniature")
    parser.add_argument("--rows", nargs="+", help="only these rows")
    parser.add_argument("--limit", type=float, help="seconds that the phase may take")
    options = parser.parse_args()
    options.limit = options.limit or LIMIT_S[options.phase] * (DRY_PATIENCE if options.dry else 1)
    m = Machine(options)
    try:
        return run_phase(m, options)
    finally:
        shutil.rmtree(m.work, ignore_errors=True)


def run_phase(m, options):
    there = subprocess.run([m.program("ingot_cuda_tests"), "--gtest_filter=-*"], stdout=subprocess.PIPE,
                           stderr=subprocess.STDOUT, text=True, check=False)
    if there.returncode:
        print(f"nothing was measured: {there.stdout.strip()}", file=sys.stderr)
        return 77
    version = subprocess.run([m.program("ingot"), "--version"], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    card = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"], stdout=subprocess.PIPE,
                          text=True, check=False).stdout.splitlines()[:1] if shutil.which("nvidia-smi") else []
    m.identity = {"program": version, "device": card[0] if card else "simulated" if m.is_dry else "unknown",
                  "date": datetime.date.today().isoformat()}
    done = {line["row"] for line in m.lines() if line.get("status") == "passed" and line["program"] == version and
            line["device"] == m.identity["device"]}
    has_failed = False
    for name, limit_s, measure in ROWS[m.phase]:
        if name in done or (options.rows and name not in options.rows):
            continue
        m.row_end = m.end
        if m.left_s() < 5:
            print(f"{m.phase} {name:<28} no time is left; call the phase again with the same OUT", flush=True)
            continue
        has_failed |= run_row(m, name, limit_s * (DRY_PATIENCE if m.is_dry else 1), measure) in ("failed", "too long")
        (m.out / "summary.md").write_text(summary.page(m.lines()), encoding="utf-8")
    return 1 if has_failed else 0


if __name__ == "__main__":
    sys.exit(main())
