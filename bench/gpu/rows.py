#!/usr/bin/env python3
"""Measures Ingot on a GPU that is lent for a quarter of an hour; bench/gpu/run.sh calls it.

  python3 rows.py OUT COMMAND [--torch-cache FILE] [--programs FOLDER] [--dry] [--rows NAME...] [--limit SECONDS]

| command | what it says | usual | at most |
|---|---|---|---|
| works | whether it works: libraries, every product's descriptor, device tests, NCCL on one rank, a few steps, losses | 150 s | 240 s |
| numbers | how fast it is, most wanted first: losses and steps beside PyTorch's, graphs, FP8, products, attention, kernels | 450 s | 520 s |
| claims | FP8 by row and with delayed scaling, and the head, the cap and the schedule of the speed run (docs/claims.md) | 120 s | 200 s |
| several | 124M and 1.3B on 1, 2, 4 and 8 GPUs in every layout, and the messages of Muon's updates | 570 s | 570 s |

Times of `works` mean little: its rows run beside each other, and beside PyTorch, which compiles its models for `numbers`:
OUT/torch-cache.tar.gz, for --torch-cache. Every figure is a line of OUT/results.jsonl, and part of OUT/summary.md, the moment
it is measured; OUT/log.txt has the programs' output, OUT/tests.log that of the device tests. --dry runs every row in
miniature, with programs built for the simulated device, and has ten times as long for each. Exits with 1 if a row failed,
with 77 if there is no GPU."""
import argparse
import array
import contextlib
import json
import os
import pathlib
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tarfile
import time

from machine import HERE, TORCH, Failed, Machine, Skipped, TooLong, last_json, rival, run_lanes, said_by

LIMIT_S = {"works": 240, "numbers": 520, "claims": 200, "several": 570}
DRY_PATIENCE = 10  # a dry run shares a slow machine with others
SHARDS = 6  # processes of the device tests
CACHE_BYTES = 16 << 20  # a larger file may not come back from a lent machine
# Losses beside PyTorch's: parts of the loss, at any step. On CPUs, 20 steps of 4 layers of GPT-2 at this rate are 1e-6 (f32) and
# 7e-5 (bf16) apart. At ten times the rate AdamW without warm-up amplifies roundings: f32 is then 9e-3 apart after 12 steps.
LOSS_RATE = 3e-5
LOSS_LIMITS = {"f32": 1e-5, "bf16": 2e-3}
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


def dry(row, words):
    return words if row.m.is_dry else []


def model_source(row, model):
    """Returns what `ingot bench step` reads, and the settings that it needs besides."""
    if model == "llama-1b":  # the preset, with the batch and the loss of the 1.3B
        settings = {"train.device": "cuda", "train.batch_size": 8, "activations.policy": "auto", "head.loss_dtype": "bf16_logits"}
        tiny = {"model.layers": 1, "model.heads": 2, "model.kv_heads": 2, "model.width": 32, "model.ffn": 64, "model.context": 16,
                "model.vocab": 512, "train.batch_size": 2}
        return model, {**settings, **(tiny if row.m.is_dry else {})}
    if model == "hybrid-124m":
        tiny = {"model.heads": 2, "model.width": 32, "model.rope_dims": 8, "model.context": 64, "model.window": 32, "model.vocab": 512,
                "train.batch_size": 1}
        return (f"{model}-tiny", {"train.device": "cuda", **tiny}) if row.m.is_dry else (model, {"train.device": "cuda"})
    if not row.m.is_dry:
        return HERE / f"{model}.toml", {}
    path = row.m.work / f"{model}.toml"
    is_gpt = model.startswith("gpt2")
    path.write_text(DRY_MODEL.format(norm="layernorm" if is_gpt else "rmsnorm", bias="true" if is_gpt else "false",
                                     positions="learned" if is_gpt else "rope", mlp="gelu_tanh" if is_gpt else "swiglu"))
    return path, {}


# Rows. Each takes its Row and writes its figures.

def libraries(row):
    """Every library of every program is found."""
    said = ""
    for path in sorted(row.m.programs.iterdir()):
        if path.is_file() and os.access(path, os.X_OK) and path.open("rb").read(4) == b"\x7fELF":
            said += row.run(["ldd", path])
    missing = sorted({line.strip() for line in said.splitlines() if "not found" in line})
    if missing:
        raise Failed("; ".join(missing))
    with contextlib.suppress(OSError):
        row.run(["nvidia-smi"])


def doctor(row):
    found = json.loads(row.run([row.m.program("ingot"), "doctor", "--json"]))
    row.write(name="doctor", rows={line["name"]: line["value"] for line in found["rows"]}, notes=found.get("notes", []))


def device(row):
    row.run([row.m.program("ingot_cuda_tests"), "--gtest_filter=-*"])


def optional_program(row, name):
    if not os.path.exists(row.m.program(name)):
        raise Skipped(f"there is no {name}")
    return row.m.program(name)


def probe(row):
    """Asks the libraries for every kind of product."""
    figures = row.m.work / "probe.jsonl"
    try:
        row.run([optional_program(row, "gpu_probe"), "--json", figures, *dry(row, ["--tiny", "--seconds", "300"])])
    finally:
        for line in figures.read_text().splitlines() if figures.exists() else []:
            row.write(probe=json.loads(line))


def nccl_one_rank(row):
    row.run([optional_program(row, "nccl_one_rank")])


def device_tests(row):
    """Runs the tests in SHARDS processes. All append to one log, test by test, so it shows what a killed process did."""
    log = row.m.out / "tests.log"
    command = [row.m.program("ingot_cuda_tests"), *dry(row, ["--gtest_filter=CudaCast.*"])]
    with contextlib.ExitStack() as stack:
        out = stack.enter_context(open(log, "ab"))
        shards = [stack.enter_context(row.process(command, {"GTEST_TOTAL_SHARDS": str(SHARDS), "GTEST_SHARD_INDEX": str(i)},
                                                  stdin=subprocess.DEVNULL, stdout=out, stderr=out)) for i in range(SHARDS)]
        while any(shard.poll() is None for shard in shards) and row.left_s() > 0:
            time.sleep(0.05)
        codes = [shard.poll() for shard in shards]
    text = log.read_text(encoding="utf-8", errors="replace")
    begun = re.findall(r"\[ RUN +\] (\S+)", text)
    ended = {name: (result, int(ms)) for result, name, ms in re.findall(r"\[ +(OK|FAILED|SKIPPED) +\] ([^\s,]+).*\((\d+) ms\)", text)}
    failed = sorted(name for name, (result, _) in ended.items() if result == "FAILED")
    unfinished = sorted(set(begun) - set(ended))
    row.m.suspects = failed + unfinished
    slowest = sorted(((ms, name) for name, (_, ms) in ended.items()), reverse=True)[:5]
    row.write(name="tests", passed=sum(result == "OK" for result, _ in ended.values()), failed=failed, unfinished=unfinished,
              slowest=slowest)
    if None in codes:
        raise TooLong(f"{codes.count(None)} of {SHARDS} processes did not end: {' '.join(unfinished)}")
    if failed or any(codes):
        raise Failed(f"exit codes {codes}: {' '.join(failed + unfinished)}; tests.log has the output")


def checker(tool, tests):
    """Runs device tests under compute-sanitizer; tests(row) returns a filter."""
    def measure(row):
        wanted = tests(row)
        sanitizer = shutil.which("compute-sanitizer") or next(
            (str(path) for path in pathlib.Path("/usr/local").glob("cuda*/bin/compute-sanitizer")), None)
        if not wanted:
            raise Skipped("no test failed")
        if not sanitizer and not row.m.is_dry:
            raise Skipped("there is no compute-sanitizer")
        row.run([*([sanitizer, "--tool", tool, "--error-exitcode", "9"] if sanitizer else []), row.m.program("ingot_cuda_tests"),
                 f"--gtest_filter={wanted}", "--gtest_brief=1"])
    return measure


def bench_step(row, model, settings, seconds=5, steps=None, trace=None):
    """Times steps, as many as take about `seconds`, and returns the figures of `ingot bench step`. The first call for a
    configuration times 8 steps, because it does not know how long they take."""
    source, more = model_source(row, model)
    command = [row.m.program("ingot"), "bench", "step", source, "--json", "--no-products", *(["--trace", trace] if trace else [])]
    for key, value in {**more, **settings}.items():
        command += ["--set", f"{key}={value}"]
    key = (model, json.dumps(settings))
    command += ["--steps", 2 if row.m.is_dry else steps or row.m.steps_for.get(key, 8)]
    try:
        found = last_json(row.run(command))
    except Failed:
        if row.m.command == "works":  # what the libraries say about it
            with contextlib.suppress(Failed, TooLong):
                row.run(command, environment={"CUBLASLT_LOG_LEVEL": "2", "CUDNN_LOGLEVEL_DBG": "2", "CUDNN_LOGDEST_DBG": "stderr"})
        raise
    row.m.steps_for[key] = max(8, int(seconds * 1e3 / found["step_ms"]))
    tflops = found["gflops"] * 1e-3
    return {"step_ms": found["step_ms"], "tokens_per_s": found["tokens_per_s"], "tflops": tflops,
            "of_datasheet": tflops / DATASHEET_TFLOPS, "device_bytes": found.get("device_bytes"), "engine": found["engine"],
            "loss": found["loss_last"], "start_s": found["startup_s"], "launches": found.get("launches"), **kernels_of(found)}


def kernels_of(found):
    """Which attention ran, and which kinds of products the library refused or is slower at."""
    kernels = found.get("kernels", {})
    figures = {key: kernels[key] for key in ("attention_forward", "attention_backward") if key in kernels}
    for key in ("refused", "slower"):
        if kinds := [kind for kind, counts in kernels.get("products", {}).items() if counts.get(key)]:
            figures[key] = kinds
    return figures


VARIANTS = {"eager": {}, "graph": {"train.graph": "true"}, "fp8": {"precision.fp8": "tensorwise"}}
# The rows of the first document's ablation that change the time of a step; the schedule changes none.
HEADS = {"bf16 head, tanh": {"head.precision": "bf16", "model.cap": "tanh", "model.cap_a": 15},
         "fp8 head, tanh": {"head.precision": "fp8", "model.cap": "tanh", "model.cap_a": 15}, "fp8 head, sigmoid": {}}
SETTINGS = {**VARIANTS, **HEADS, "rowwise": {"precision.fp8": "rowwise"}, "delayed": {"precision.fp8": "delayed"}}


def step(model, variant="eager", steps=None, is_traced=False):
    def measure(row):
        trace = row.m.out / f"{model}.trace.json" if is_traced else None
        row.write(name="ingot", model=model, variant=variant, **bench_step(row, model, SETTINGS[variant], steps=steps, trace=trace))
    return measure


def by_turns(model, turns):
    """Ingot and PyTorch in alternation; the ratio is the median of the rounds' ratios so far."""
    def measure(row):
        seconds, ratios = 0.05 if row.m.is_dry else 5, []
        if (model, "{}") not in row.m.steps_for:  # chooses kernels and tells how many steps to time
            row.write(name="ingot", model=model, variant="eager", turn=0, **bench_step(row, model, {}, seconds))
        with rival(row, model) as torch:
            row.write(name="torch start", model=model, **torch.first)
            for turn in range(1, turns + 1):
                ours = bench_step(row, model, {}, seconds)
                row.write(name="ingot", model=model, variant="eager", turn=turn, **ours)
                theirs = torch.train(seconds)
                row.write(name="torch", model=model, turn=turn, device_bytes=torch.first["device_bytes"],
                          of_datasheet=theirs["tflops"] / DATASHEET_TFLOPS, **theirs)
                ratios.append(ours["tokens_per_s"] / theirs["tokens_per_s"])
                row.write(name="ratio", model=model, ratio=statistics.median(ratios), turns=ratios)
    return measure


def torch_cache(model):
    """Compiles PyTorch's model, so that the next loan finds the code in OUT/torch-cache.tar.gz."""
    def measure(row):
        row.run([*TORCH, "warm", model, *dry(row, ["--dry"])])
        row.m.torch_cache.mkdir(exist_ok=True)
        packed = row.m.work / "torch-cache.tar.gz"
        with tarfile.open(packed, "w:gz") as file:
            file.add(row.m.torch_cache, ".")
        row.write(name="torch cache", model=model, bytes=packed.stat().st_size)
        if packed.stat().st_size > CACHE_BYTES:
            raise Failed(f"torch-cache.tar.gz has {packed.stat().st_size} bytes, more than {CACHE_BYTES}: it is left out")
        shutil.move(packed, row.m.out / packed.name)
    return measure


def device_bench(part, models=()):
    def measure(row):
        figures = row.m.work / f"{row.name}.jsonl"
        words = ["--tiny"] if row.m.is_dry else [word for model in models for word in ("--model", model)]
        row.run([row.m.program("device_bench"), "--json", figures, *words, part], watched=figures)
    return measure


def parity(model):
    """Losses of a small model on the GPU beside the CPU's."""
    def measure(row):
        found = row.m.work / f"parity-{model}.json"
        settings = ["model.layers=1", "model.width=32", "model.heads=2", "model.context=16", "train.batch_size=1",
                    "eval.max_tokens=64"]
        tiny = ["--steps", 2, *(word for key in settings for word in ("--set", key))]
        row.run([sys.executable, HERE / "parity.py", row.m.program("ingot"), "--models", model, "--json", found, "--out",
                 row.m.work / f"parity-{model}", *(tiny if row.m.is_dry else ["--steps", 20])])
        for line in json.loads(found.read_text()):
            row.write(name=f"{line['model']} {line['compute']}, CPU", apart=line["apart"], limit=line["limit"], steps=line["steps"])
    return measure


def write_phrases(path, vocab, tokens):
    """Writes 16-bit tokens: phrases of 8 tokens drawn by Zipf's law, so that a model has something to learn."""
    source = random.Random(3)
    phrases = [[source.randrange(vocab) for _ in range(8)] for _ in range(4096)]
    drawn = source.choices(phrases, [1 / (i + 1) for i in range(len(phrases))], k=tokens // 8)
    path.write_bytes(array.array("H", [token for phrase in drawn for token in phrase]).tobytes())


def losses(steps, batch, computes, is_compiled):
    """Trains GPT-2 124M from PyTorch's weights on the same windows in both and compares the losses of all steps."""
    def measure(row):
        context, vocab = (16, 512) if row.m.is_dry else (1024, 50304)
        count, sequences = (4, 2) if row.m.is_dry else (steps, batch)
        folder = row.m.work / row.name
        folder.mkdir()
        write_phrases(folder / "train.bin", vocab, 40 * sequences * context)
        write_phrases(folder / "val.bin", vocab, 4 * sequences * context)
        fields = dict(layers=12, heads=12, width=768, ffn=3072, context=context, vocab=vocab, norm="layer_norm",
                      positions="learned", mlp="gelu_tanh", has_bias=True)
        if row.m.is_dry:
            fields.update(layers=1, heads=2, width=32, ffn=64)
        (folder / "model.json").write_text(json.dumps({"model": fields, "batch": sequences, "seed": 11, "rate": LOSS_RATE}))
        worst = []
        for compute in computes:
            theirs = last_json(row.run([*TORCH, "losses", folder, "--steps", count, "--compute", compute,
                                        *(["--compile"] if is_compiled else []), *dry(row, ["--dry"])]))["losses"]
            command = [row.m.program("ingot"), "train", "--init", folder / "init", "--data", f"nanogpt:{folder}", "--out",
                       folder / compute]
            for key, value in {"train.steps": count, "train.batch_size": sequences, "train.seed": 11, "train.device": "cuda",
                               "precision.compute": compute, "optimizer.lr": LOSS_RATE, "optimizer.beta2": 0.95,
                               "schedule.kind": "constant", "schedule.warmup_steps": 0, "eval.every": 0,
                               "sample.count": 0}.items():
                command += ["--set", f"{key}={value}"]
            row.run(command)
            lines = [json.loads(line) for line in (folder / compute / "metrics.jsonl").read_text().splitlines()]
            ours = [line["loss"] for line in lines if "loss" in line]
            if len(ours) != count or len(theirs) != count:
                raise Failed(f"{len(ours)} and {len(theirs)} losses of {count} steps")
            apart, limit = max(abs(a - b) / b for a, b in zip(ours, theirs)), LOSS_LIMITS[compute]
            row.write(name=f"gpt2-124m {compute}, PyTorch", steps=count, apart=apart, limit=limit, first=[ours[0], theirs[0]],
                      last=[ours[-1], theirs[-1]], ours=ours, theirs=theirs)
            if not apart <= limit:
                worst.append(f"losses in {compute} are {apart:.1e} apart, more than {limit:.0e}")
        if worst:
            raise Failed("; ".join(worst))
    return measure


def on_gpus(row, gpus, program):
    """Returns the words that start a program on several GPUs."""
    if not shutil.which("mpirun"):
        raise Skipped("there is no mpirun")
    if not row.m.is_dry and gpu_count() < gpus:
        raise Skipped(f"{gpu_count()} GPUs")
    if not os.path.exists(row.m.program(program)):
        raise Skipped(f"there is no {program}, which builds with MPI have")
    return ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", gpus, row.m.program(program)]


def ranks(layout, gpus):
    """Steps of 124M and 1.3B on several GPUs in one layout, and how long ranks waited for one another."""
    def measure(row):
        for model in MODELS_OF_RANKS:
            found = last_json(row.run([*on_gpus(row, gpus, "ingot"), "bench", "parallel", model_source(row, model)[0], "--set",
                                       f"parallel.{layout}={gpus}", "--steps", 2 if row.m.is_dry else 10, "--json"]))
            waits = {}
            for operation in found["operations"]:
                waits[operation["rank"]] = waits.get(operation["rank"], 0) + operation["wait_s"]
            steps = 1 + max((operation["step"] for operation in found["operations"]), default=0)
            row.write(name=layout, model=model, gpus=gpus, step_ms=found["step_s"] * 1e3,
                      waited_ms=max(waits.values(), default=0) / steps * 1e3)
    return measure


def muon_messages(gpus):
    """Muon's updates of 124M and 1.3B on replicas: directions in one gather per round, and in one message per matrix."""
    def measure(row):
        text = row.run([*on_gpus(row, gpus, "muon_bench"), *(["--tiny"] if row.m.is_dry else []), *MODELS_OF_RANKS])
        found = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
        if len(found) != len(MODELS_OF_RANKS):
            raise Failed(f"{len(found)} figures of {len(MODELS_OF_RANKS)} models")
        for figures in found:
            row.write(name="muon", gpus=gpus, **figures)
    return measure


def gpu_count():
    return sum(line.startswith("GPU") for line in said_by(["nvidia-smi", "-L"]).splitlines())


# Per command: stages, one after another; a stage's lanes, beside each other; a lane's rows: name, seconds at most, what it
# does. The limits of the longest lanes add up to no more than the command's own.
FIRST = [("libraries", 5, libraries), ("doctor", 10, doctor), ("device", 5, device)]
STAGES = {
    "works": [
        [[("step-llama-1.3b", 30, step("llama-1.3b", steps=4))]],
        [[("tests", 75, device_tests), ("memcheck", 30, checker("memcheck", lambda row: ":".join(row.m.suspects[:20])))],
         [("probe", 30, probe), ("nccl-one-rank", 15, nccl_one_rank),
          ("step-gpt2-124m", 25, step("gpt2-124m", steps=4, is_traced=True)),
          ("step-gpt2-124m-graph", 20, step("gpt2-124m", "graph", steps=4)),
          ("step-gpt2-124m-fp8", 20, step("gpt2-124m", "fp8", steps=4)),
          ("losses", 60, losses(20, 8, ("f32", "bf16"), is_compiled=False))],
         [(f"parity-{model}", 60, parity(model)) for model in ("tiny-llama", "tiny-gpt2")],
         [("torch-gpt2-124m", 80, torch_cache("gpt2-124m")), ("torch-llama-1.3b", 60, torch_cache("llama-1.3b"))]]],
    "numbers": [[[
        ("rates", 15, device_bench("peak")), ("losses", 90, losses(100, 64, ("bf16",), is_compiled=True)),
        ("step-gpt2-124m", 95, by_turns("gpt2-124m", 3)), ("step-gpt2-124m-graph", 15, step("gpt2-124m", "graph")),
        ("step-gpt2-124m-fp8", 15, step("gpt2-124m", "fp8")),
        ("step-gpt2-124m-trace", 15, step("gpt2-124m", steps=4, is_traced=True)),
        *((f"step-llama-1.3b-{variant}", 20, step("llama-1.3b", variant)) for variant in VARIANTS),
        ("step-llama-1b", 25, step("llama-1b")), ("step-llama-1.3b", 75, by_turns("llama-1.3b", 2)),
        ("products", 25, device_bench("products", ["gpt2-124m"])),
        ("attention", 20, device_bench("attention", ["gpt2-124m", "llama-1.3b"])),
        ("kernels", 20, device_bench("kernels")), ("racecheck", 30, checker("racecheck", lambda row: SMALL_TESTS))]]],
    "claims": [[[
        ("step-hybrid-124m-bf16", 40, step("hybrid-124m", "bf16 head, tanh")),
        ("step-hybrid-124m-fp8", 30, step("hybrid-124m", "fp8 head, tanh")),
        ("step-hybrid-124m-sigmoid", 30, step("hybrid-124m", "fp8 head, sigmoid")),
        ("step-gpt2-124m-tensorwise", 20, step("gpt2-124m", "fp8")),
        ("step-gpt2-124m-rowwise", 20, step("gpt2-124m", "rowwise")),
        ("step-gpt2-124m-delayed", 20, step("gpt2-124m", "delayed"))]]],
    "several": [[[
        *((f"ranks-{layout}-{gpus}", 35, ranks(layout, gpus)) for gpus in (1, 2, 4, 8)
          for layout in (("dp",) if gpus == 1 else ("dp", "fsdp", "tp", "pp"))),
        *((f"muon-{gpus}", 25, muon_messages(gpus)) for gpus in (2, 4, 8))]]],
}


def stages_of(command, wanted, patience):
    """The stages with the limits of a dry or a real run; `wanted`: only rows of these names."""
    return [[[(name, limit * patience, measure) for name, limit, measure in lane if not wanted or name in wanted]
             for lane in lanes] for lanes in [[FIRST], *STAGES[command]]]


def run_command(m, stages):
    """Returns the exit code. Without libraries, doctor or device nothing else is tried."""
    statuses = {}
    for lanes in stages:
        statuses.update(run_lanes(m, lanes))
        for name, _, _ in FIRST:
            if statuses.get(name) not in (None, "passed"):
                is_no_gpu = name == "device" and statuses[name] == "skipped"
                why = next((line["why"] for line in m.lines if line["row"] == name and "why" in line), "there was no time")
                print(f"nothing was measured: {name}: {why}", file=sys.stderr)
                return 77 if is_no_gpu else 1
    return 1 if {"failed", "too long"} & set(statuses.values()) else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("command", choices=LIMIT_S)
    parser.add_argument("--torch-cache", type=pathlib.Path, help="torch-cache.tar.gz that `works` has left")
    parser.add_argument("--programs", type=pathlib.Path, default=HERE, help="folder with ingot, ingot_cuda_tests, device_bench")
    parser.add_argument("--dry", action="store_true", help="run every row in miniature")
    parser.add_argument("--rows", nargs="+", help="only these rows")
    parser.add_argument("--limit", type=float, help="seconds that the command may take")
    options = parser.parse_args()
    patience = DRY_PATIENCE if options.dry else 1
    m = Machine(options.command, options.out, options.programs, options.limit or LIMIT_S[options.command] * patience,
                options.dry, options.torch_cache)
    signal.signal(signal.SIGTERM, lambda *_: m.cut())  # the processes end before the script does
    try:
        return run_command(m, stages_of(options.command, options.rows, patience))
    finally:
        shutil.rmtree(m.work, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
