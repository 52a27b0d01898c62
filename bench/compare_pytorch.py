#!/usr/bin/env python3
"""Compares Ingot with PyTorch on this machine's CPU: the same model, data and dtype, alternating in one run.

  python bench/compare_pytorch.py [--models gpt2-124m,shakespeare-char-cpu,llama-350m] [--dtypes f32,bf16] [--quick]
                                  [--context N] [--batch N] [--rounds N] [--tune] [--set KEY=VALUE]... [--json FILE]
  python bench/compare_pytorch.py --wall --data tinyshakespeare.txt [--seeds 1337] [--json FILE]

Needs torch in the Python that runs it (pip install torch) and build/release/ingot. Run it on an idle machine;
every round records the load average at its start. Ratios depend on the machine: the bars below were set for
2 cores with AVX-512 and bf16 units. Without those units PyTorch's bf16 products are a scalar loop, some 40
times slower than its own f32, so a bf16 ratio says little there: each row also has `ratio_to_pytorch_best`,
Ingot's tokens/s over those of PyTorch's faster dtype. A PyTorch step that is still in its forward pass after
--max-step-s is aborted: the row then has `pytorch_is_upper_bound`, its tokens/s are an upper bound and its peak
memory is a lower bound.

Each measurement is a separate process, so that its peak memory is its own, and the order is Ingot, PyTorch,
Ingot, PyTorch, ... The figure of a round is the median over its steps, and that of a row the median over rounds.
ratio_tokens_per_s is the median of the rounds' ratios (Ingot / PyTorch; more is better), and so is
ratio_peak_memory (less is better). Wall time and peak memory of both sides include the start of the process and its
libraries.

--context and --batch give both sides another context length and another number of sequences per step, for long contexts:
`--models gpt2-124m --dtypes bf16 --batch 1 --context 4096`. Rows with them are judged by the bar of that context, if there is
one. llama-350m, a LLaMA with four query heads for each head of keys, is measured if --models names it.

--set adds settings to Ingot's configuration; the row records them. `--dtypes bf16 --set precision.master=bf16_tail
--set activations.policy=block` needs the least memory for the same numbers (exact masters in 32 bits altogether,
and the activations of each block are recomputed).

PyTorch's best environment: one OpenMP thread per core, an allocator that keeps its pages (glibc with
MALLOC_MMAP_MAX_=0 and MALLOC_TRIM_THRESHOLD_, or jemalloc where it is installed), fused AdamW, flash attention.
--tune first tries every combination of allocator, optimizer and torch.compile for each model and dtype, prints
the result of each, and takes the fastest. Without --tune the candidates are eager and torch.compile in the
kept-pages environment, and the one that is faster in the first round is used.

Data of the steps: token i of one stream is floor((i * 2654435761 mod 2^32) * V / 2^32), where V is the vocabulary
without padding; sequence b of step s is the T + 1 tokens from (s * B + b) * (T + 1): T inputs, T targets. Both sides
must begin within 0.3 of ln V nats; otherwise they do not compute the same thing and the row is refused.

Contract with Ingot
  ingot bench step PRESET --set KEY=VALUE ... --steps N --json
prints one JSON object on stdout (everything else on stderr) about N timed whole steps (forward, backward,
clipping, AdamW), which follow at least two untimed ones.
  required: tokens_per_s (median), step_ms (median), peak_rss_bytes (VmHWM), loss_first (step 0; untimed steps
            count), batch_size (sequences per step), context
  optional: matmul_ms (the step's products, timed separately in this run), matmul_share (matmul_ms / step_ms),
            startup_s (process start to the first step), mfu, phases {name: ms},
            model {the resolved [model] table, keys and values as in TOML}: PyTorch then builds the same model
  ingot train shakespeare-char-cpu --data FILE --out DIR --set train.seed=N --set precision.compute=DTYPE
              --set eval.max_tokens=0
writes DIR/run.json with val_loss (the whole last tenth), wall_s, train_s, peak_rss_bytes.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
KEEP_PAGES = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 40), "MALLOC_TOP_PAD_": str(64 << 20)}
JEMALLOC = ["/usr/lib/x86_64-linux-gnu/libjemalloc.so.2", "/usr/lib/aarch64-linux-gnu/libjemalloc.so.2",
            "/usr/lib64/libjemalloc.so.2"]
GPT2_124M = dict(layers=12, heads=12, width=768, context=256, vocab=50304, norm="layer_norm", positions="learned",
                 mlp="gelu_tanh", has_bias=True, is_tied=True)
SHAKESPEARE = dict(layers=4, heads=4, width=128, context=64, vocab=65, norm="layer_norm", positions="learned",
                   mlp="gelu_exact", has_bias=False, is_tied=True)
# model: PyTorch's model, unless Ingot reports its own. set: overrides of Ingot's preset (keys that follow from the
# data, or that are larger there).
LLAMA_350M = dict(layers=24, heads=16, kv_heads=4, width=1024, ffn=2816, context=2048, vocab=32000, norm="rms_norm",
                  positions="rope", mlp="swiglu", has_bias=False, is_tied=False)
MODELS = {
    "gpt2-124m": dict(model=GPT2_124M, token_vocab=50257, batch_size=4, steps=4, quick_steps=2,
                      set={"train.batch_size": 4, "train.grad_accum": 1, "model.context": 256, "model.vocab": 50257}),
    "shakespeare-char-cpu": dict(model=SHAKESPEARE, token_vocab=65, batch_size=12, steps=200, quick_steps=60,
                                 set={"train.batch_size": 12, "train.grad_accum": 1, "model.vocab": 65}),
    "llama-350m": dict(source=str(HERE / "gpu" / "llama-350m.toml"), model=LLAMA_350M, token_vocab=32000, batch_size=1,
                       steps=3, quick_steps=2,
                       set={"train.device": "cpu", "train.batch_size": 1, "train.grad_accum": 1, "model.kv_heads": 4,
                            "activations.policy": "none", "head.loss_dtype": "f32"}),
}
DEFAULT_MODELS = "gpt2-124m,shakespeare-char-cpu"
LONG_BARS = {("gpt2-124m", "bf16", 4096): {"ratio_tokens_per_s": 1.5}}  # by context
BARS = {("gpt2-124m", "f32"): {"ratio_tokens_per_s": 1.2, "ratio_peak_memory": 0.6, "matmul_share": 0.75},
        ("gpt2-124m", "bf16"): {"ratio_tokens_per_s": 1.3, "ratio_peak_memory": 0.6, "matmul_share": 0.75,
                                "bf16_over_f32": 1.7},
        ("shakespeare-char-cpu", "f32"): {"ratio_tokens_per_s": 2.0, "matmul_share": 0.6},
        ("shakespeare-char-cpu", "bf16"): {"ratio_tokens_per_s": 2.0, "matmul_share": 0.6},
        ("wall", "f32"): {"ratio_wall": 0.5}}
AT_MOST = ("ratio_peak_memory", "ratio_wall", "ingot_startup_s")


def say(text):
    print(text, file=sys.stderr, flush=True)


def run_json(command, environment):
    """Returns the JSON object on the last line of the command's stdout, with the wall time added as process_s."""
    start = time.perf_counter()
    done = subprocess.run(command, env={**os.environ, **environment}, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True, check=False)
    if done.returncode != 0:
        tail = " | ".join((done.stderr.strip() or done.stdout.strip()).splitlines()[-3:])
        raise RuntimeError(f"{' '.join(map(str, command[:4]))} ... exited {done.returncode}: {tail}")
    text = done.stdout.strip()
    try:
        result = json.loads(text if text.startswith("{") else text.splitlines()[-1])
    except (ValueError, IndexError):
        raise RuntimeError(f"{' '.join(map(str, command[:4]))} ... printed no JSON object: {text[:200]!r}") from None
    return {**result, "process_s": time.perf_counter() - start}


class Rival:
    """One way to run PyTorch: allocator, optimizer, compiled or not."""

    def __init__(self, allocator, optimizer, compiled):
        self.allocator, self.optimizer, self.compiled = allocator, optimizer, compiled

    def __str__(self):
        return f"{'compiled' if self.compiled else 'eager'}, {self.optimizer} AdamW, {self.allocator}"

    def environment(self, threads, inductor_cache):
        extra = {"OMP_NUM_THREADS": str(threads), "TORCHINDUCTOR_CACHE_DIR": inductor_cache}
        if self.allocator == "kept pages":
            extra.update(KEEP_PAGES)
        elif self.allocator == "jemalloc":
            extra.update(LD_PRELOAD=jemalloc(), MALLOC_CONF="dirty_decay_ms:-1,muzzy_decay_ms:-1")
        return extra

    @staticmethod
    def candidates(tune):
        if not tune:
            return [Rival("kept pages", "fused", False), Rival("kept pages", "fused", True)]
        allocators = ["as installed", "kept pages"] + (["jemalloc"] if jemalloc() else [])
        out = [Rival(allocator, "fused", compiled) for allocator in allocators for compiled in (False, True)]
        return out + [Rival("kept pages", "foreach", False)]


def jemalloc():
    chosen = os.environ.get("INGOT_JEMALLOC")
    return next((p for p in ([chosen] if chosen else JEMALLOC) if os.path.exists(p)), None)


def ingot_model(name, dtype, threads, more=()):
    """Returns the arguments of Ingot's commands that name a model of MODELS and its settings."""
    spec = MODELS[name]
    settings = {**spec["set"], "precision.compute": dtype, "train.threads": threads}
    arguments = [spec.get("source", name)]
    for setting in [f"{key}={value}" for key, value in settings.items()] + list(more):
        arguments += ["--set", setting]
    return arguments


class Bench:
    def __init__(self, args):
        self.args = args
        self.cache = tempfile.mkdtemp(prefix="ingot-compare-")

    def ingot_step(self, name, dtype, steps):
        command = [self.args.ingot, "bench", "step", *ingot_model(name, dtype, self.args.threads, self.args.set)]
        return run_json(command + ["--steps", str(steps), "--json"], {"OMP_NUM_THREADS": str(self.args.threads)})

    def pytorch_step(self, name, dtype, steps, rival, model):
        spec = MODELS[name]
        job = {"model": model, "dtype": dtype, "batch_size": spec["batch_size"], "token_vocab": spec["token_vocab"],
               "threads": self.args.threads, "steps": steps, "warmup": 2, "max_s": self.args.max_step_s,
               "optimizer": rival.optimizer, "compile": rival.compiled}
        command = [sys.executable, HERE / "pytorch_run.py", "step", json.dumps(job)]
        return run_json(command, rival.environment(self.args.threads, self.cache))

    def choose_rival(self, name, dtype, model):
        """Returns the candidate that is fastest in a short run, its result, and the results of all candidates."""
        steps, found = MODELS[name]["quick_steps"], []
        for rival in Rival.candidates(self.args.tune):
            try:
                result = self.pytorch_step(name, dtype, steps, rival, model)
            except RuntimeError as error:
                say(f"  pytorch {rival}: left out: {error}")
                continue
            found.append((result, rival))
            say(f"  pytorch {rival}: {result['tokens_per_s']:.1f} tokens/s, {result['step_ms']:.1f} ms, "
                f"peak {result['peak_rss_bytes'] / 2**20:.0f} MiB{', cut short' if result['cut_short'] else ''}")
            if result["cut_short"]:
                break  # a step takes minutes: trying the others costs too much time
        if not found:
            raise RuntimeError(f"{name} {dtype}: PyTorch did not run in any environment")
        result, rival = max(found, key=lambda f: f[0]["tokens_per_s"])
        tried = [{"variant": str(v), "tokens_per_s": r["tokens_per_s"], "peak_rss_bytes": r["peak_rss_bytes"]}
                 for r, v in found]
        return rival, result, tried

    def row(self, name, dtype):
        spec, args = MODELS[name], self.args
        steps = spec["quick_steps"] if args.quick else spec["steps"]
        say(f"{name} {dtype}: {steps} steps a round, {args.rounds} rounds")
        model, ingot = spec["model"], None
        if not args.pytorch_only:
            ingot = self.ingot_step(name, dtype, spec["quick_steps"])
            model = torch_model(ingot.get("model"), model)
        rival, first, tried = self.choose_rival(name, dtype, model)
        if ingot:
            refuse_unlike(name, ingot, first, spec)
        rounds = []
        for number in range(args.rounds):
            entry = {"load": os.getloadavg()[0]}
            if not args.pytorch_only:
                entry["ingot"] = self.ingot_step(name, dtype, steps)
            entry["pytorch"] = first if first["cut_short"] else self.pytorch_step(name, dtype, steps, rival, model)
            rounds.append(entry)
            say(f"  round {number + 1}, load {entry['load']:.1f}: " + ", ".join(
                f"{side} {entry[side]['tokens_per_s']:.1f} tokens/s" for side in ("ingot", "pytorch") if side in entry))
        return summary(name, dtype, rival, tried, rounds)


def torch_model(reported, default):
    """Returns PyTorch's config for the [model] table that Ingot reports. A large vocabulary is padded to a multiple
    of 64, as nanoGPT's 50304 is."""
    if not reported:
        return default
    same = ("layers", "heads", "kv_heads", "head_dim", "width", "ffn", "context", "vocab", "positions", "mlp",
            "norm_eps", "rope_theta", "dropout", "init_std", "projection_init")
    model = {key: reported[key] for key in same if key in reported}
    model.update({f"has_{key}": reported[key] for key in ("bias", "qk_norm") if key in reported})
    if "tied" in reported:
        model["is_tied"] = reported["tied"]
    if "norm" in reported:
        model["norm"] = reported["norm"].replace("layernorm", "layer_norm").replace("rmsnorm", "rms_norm")
    if "cap" in reported:
        model["cap"] = {"kind": reported["cap"], **{k: reported[f"cap_{k}"] for k in "abc" if f"cap_{k}" in reported}}
    if model.get("vocab", 0) >= 1024:
        model["vocab"] = -(-model["vocab"] // 64) * 64
    return {**default, **model}


def refuse_unlike(name, ingot, pytorch, spec):
    expected = math.log(spec["token_vocab"])
    for side, result in (("ingot", ingot), ("pytorch", pytorch)):
        if result.get("cut_short"):
            continue
        if not abs(result["loss_first"] - expected) < 0.3:
            sys.exit(f"compare_pytorch: {name}: {side} starts at a loss of {result['loss_first']:.3f}, "
                     f"ln V is {expected:.3f}: it does not compute this model")
    want = (spec["batch_size"], spec["model"]["context"])
    if (ingot["batch_size"], ingot["context"]) != want:
        sys.exit(f"compare_pytorch: {name}: ingot ran batch_size, context {ingot['batch_size']}, {ingot['context']}; "
                 f"wanted {want[0]}, {want[1]}")


def median_of(rounds, side, key):
    values = [r[side][key] for r in rounds if r.get(side, {}).get(key) is not None]
    return statistics.median(values) if values else None


def summary(name, dtype, rival, tried, rounds):
    row = {"model": name, "dtype": dtype, "context": MODELS[name]["model"]["context"], "batch": MODELS[name]["batch_size"],
           "pytorch_variant": str(rival), "pytorch_tried": tried}
    for side in ("ingot", "pytorch"):
        for key in ("tokens_per_s", "step_ms", "peak_rss_bytes", "loss_first"):
            row[f"{side}_{key}"] = median_of(rounds, side, key)
    for key in ("matmul_ms", "matmul_share", "mfu"):
        row[key] = median_of(rounds, "ingot", key)
    row["ingot_startup_s"] = median_of(rounds, "ingot", "startup_s")
    row["pytorch_import_rss_bytes"] = median_of(rounds, "pytorch", "import_rss_bytes")
    row["pytorch_is_upper_bound"] = any(r["pytorch"]["cut_short"] for r in rounds)
    row["phases"] = rounds[-1].get("ingot", {}).get("phases")
    both = [r for r in rounds if "ingot" in r]
    for key, source in (("ratio_tokens_per_s", "tokens_per_s"), ("ratio_peak_memory", "peak_rss_bytes")):
        row[key] = statistics.median(r["ingot"][source] / r["pytorch"][source] for r in both) if both else None
    if both:  # compares with the variant that needs least memory, too
        least = min(t["peak_rss_bytes"] for t in tried)
        row["ratio_peak_memory_least"] = row["ingot_peak_rss_bytes"] / least
    row["rounds"] = rounds
    return row


def relate_dtypes(rows):
    """Adds to each row the figures that need both dtypes of a model."""
    by = {(row["model"], row["dtype"]): row for row in rows}
    for row in rows:
        others = [by[key] for key in by if key[0] == row["model"]]
        best = max(other["pytorch_tokens_per_s"] for other in others)
        if row["ingot_tokens_per_s"]:
            row["ratio_to_pytorch_best"] = row["ingot_tokens_per_s"] / best
        f32 = by.get((row["model"], "f32"))
        if row["dtype"] == "bf16" and f32 and f32["ingot_tokens_per_s"]:
            row["bf16_over_f32"] = row["ingot_tokens_per_s"] / f32["ingot_tokens_per_s"]


def resize(spec, context, batch):
    """Returns the spec of a model with another context or batch, for both sides."""
    spec = {**spec, "model": dict(spec["model"]), "set": dict(spec["set"])}
    if context:
        spec["model"]["context"] = spec["set"]["model.context"] = context
    if batch:
        spec["batch_size"] = spec["set"]["train.batch_size"] = batch
    return spec


def judge(row, has_bf16_units, resized):
    """Prints each bar of the row beside its figure and returns whether all bars are met. A comparison with PyTorch's
    scalar loop is not judged."""
    met = True
    key = (row["model"], row["dtype"])
    bars = dict(LONG_BARS.get((*key, row.get("context")), {}) if resized else BARS.get(key, {}))
    if row.get("ingot_startup_s") is not None:
        bars["ingot_startup_s"] = 1.0
    for key, bar in bars.items():
        value = row.get(key)
        if value is None:
            continue
        if row["dtype"] == "bf16" and key == "ratio_tokens_per_s" and not has_bf16_units:
            print(f"  not judged: {key} {value:.3f}: this CPU has no bf16 units, PyTorch's bf16 is a scalar loop here")
            continue
        good = value <= bar if key in AT_MOST else value >= bar
        met &= good
        side = "most" if key in AT_MOST else "least"
        print(f"  {'met   ' if good else 'MISSED'} {key} {value:.3f}, bar: at {side} {bar}")
    return met


def show(row):
    def text(value, scale=1, digits=1):
        return "-" if value is None else f"{value / scale:.{digits}f}"
    print(f"{row['model']} {row['dtype']} {row['batch']} x {row['context']}: tokens/s ingot {text(row['ingot_tokens_per_s'])}, pytorch "
          f"{text(row['pytorch_tokens_per_s'])} ({row['pytorch_variant']}), "
          f"ratio {text(row['ratio_tokens_per_s'], 1, 2)}; "
          f"peak MiB {text(row['ingot_peak_rss_bytes'], 2**20, 0)} / {text(row['pytorch_peak_rss_bytes'], 2**20, 0)}, "
          f"ratio {text(row['ratio_peak_memory'], 1, 2)}")


def wall_row(bench, dtype):
    """Times the whole of nanoGPT's CPU run with its evaluations; Ingot evaluates the whole last tenth each time."""
    args, runs = bench.args, []
    rival = Rival("kept pages", "fused", args.wall_compile)
    for seed in (int(s) for s in args.seeds.split(",")):
        entry = {"seed": seed, "load": os.getloadavg()[0]}
        if not args.pytorch_only:
            with tempfile.TemporaryDirectory() as folder:
                command = [args.ingot, "train", "shakespeare-char-cpu", "--data", args.data, "--out", f"{folder}/run"]
                for key, value in (("train.seed", seed), ("precision.compute", dtype), ("train.threads", args.threads),
                                   ("eval.max_tokens", 0)):
                    command += ["--set", f"{key}={value}"]
                start = time.perf_counter()
                subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
                process_s = time.perf_counter() - start
                entry["ingot"] = {**json.loads(Path(folder, "run", "run.json").read_text()), "process_s": process_s}
        command = [sys.executable, HERE / "pytorch_run.py", "train", "--data", args.data, "--seed", str(seed),
                   "--dtype", dtype, "--threads", str(args.threads)] + (["--compile"] if args.wall_compile else [])
        entry["pytorch"] = run_json(command, rival.environment(args.threads, bench.cache))
        entry["pytorch"]["process_s"] = entry["pytorch"]["wall_s"]  # as in nanoGPT, without val_loss
        runs.append(entry)
        for side in ("ingot", "pytorch"):
            if side in entry:
                say(f"  seed {seed} {side}: {entry[side]['process_s']:.1f} s, "
                    f"validation loss {entry[side]['val_loss']:.4f}")
    row = {"model": "wall", "preset": "shakespeare-char-cpu", "dtype": dtype, "pytorch_variant": str(rival),
           "runs": runs}
    for side in ("ingot", "pytorch"):
        row[f"{side}_wall_s"] = median_of(runs, side, "process_s")
        losses = [r[side]["val_loss"] for r in runs if side in r]
        row[f"{side}_val_loss"] = statistics.mean(losses) if losses else None
    if row["ingot_wall_s"]:
        row["ratio_wall"] = row["ingot_wall_s"] / row["pytorch_wall_s"]
    wall = lambda side: "-" if row[f"{side}_wall_s"] is None else f"{row[f'{side}_wall_s']:.1f} s"  # noqa: E731
    print(f"shakespeare-char-cpu {dtype}, 2000 steps with evaluations: ingot {wall('ingot')}, "
          f"pytorch {wall('pytorch')} ({rival}); validation loss {row['ingot_val_loss']} / {row['pytorch_val_loss']}")
    return row


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=DEFAULT_MODELS)
    parser.add_argument("--context", type=int, default=0, help="tokens per sequence, for both sides")
    parser.add_argument("--batch", type=int, default=0, help="sequences per step, for both sides")
    parser.add_argument("--dtypes", default="f32,bf16")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="fewer steps a round, one round")
    parser.add_argument("--tune", action="store_true", help="try every environment of PyTorch first")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--max-step-s", type=float, default=60, help="give up PyTorch when one step takes longer")
    parser.add_argument("--ingot", default=str(HERE.parent / "build/release/ingot"))
    parser.add_argument("--pytorch-only", action="store_true", help="measure the rival alone")
    parser.add_argument("--wall", action="store_true", help="the 2000 steps of nanoGPT's CPU run; needs --data")
    parser.add_argument("--wall-compile", action="store_true", help="PyTorch compiled (its compilation counts)")
    parser.add_argument("--data", help="tinyshakespeare.txt")
    parser.add_argument("--seeds", default="1337")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="of Ingot's side")
    parser.add_argument("--json", type=Path, help="write {machine, rows} here")
    parser.add_argument("--enforce", action="store_true", help="exit 1 when a bar is missed")
    args = parser.parse_args()
    for name in args.models.split(","):
        if name not in MODELS:
            parser.error(f"--models: {name} is not one of {', '.join(MODELS)}")
        MODELS[name] = resize(MODELS[name], args.context, args.batch)
    if min(args.context, args.batch) < 0:
        parser.error("--context and --batch must be at least 1")
    if args.wall and not args.data:
        parser.error("--wall needs --data tinyshakespeare.txt")
    if not args.pytorch_only and not os.access(args.ingot, os.X_OK):
        parser.error(f"{args.ingot}: no such program; build the release preset, or give --ingot or --pytorch-only")
    args.rounds = 1 if args.quick else args.rounds
    return args


def machine(threads):
    info = Path("/proc/cpuinfo").read_text()
    name = next((line.split(":", 1)[1].strip() for line in info.splitlines() if line.startswith("model name")), "?")
    flags = [flag for flag in ("avx2", "avx512f", "avx512_bf16", "amx_bf16") if f" {flag} " in info.replace("\n", " ")]
    return {"cpu": name, "threads": threads, "flags": flags}


def main():
    args = parse()
    bench, rows = Bench(args), []
    try:
        for dtype in args.dtypes.split(","):
            if args.wall:
                rows.append(wall_row(bench, dtype))
            else:
                rows += [bench.row(name, dtype) for name in args.models.split(",")]
    except RuntimeError as error:
        sys.exit(f"compare_pytorch: {error}")
    met, host = True, machine(args.threads)
    if not args.wall:
        relate_dtypes(rows)
    for row in rows:
        if not args.wall:
            show(row)
        met &= judge(row, "avx512_bf16" in host["flags"], bool(args.context or args.batch))
    if args.json:
        args.json.write_text(json.dumps({"machine": host, "set": args.set, "rows": rows}, indent=1) + "\n")
    sys.exit(1 if args.enforce and not met else 0)


if __name__ == "__main__":
    main()
