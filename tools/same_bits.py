#!/usr/bin/env python3
"""Shows that a change does not alter any bit of training.

    tools/build.sh release ingot ingot_simulated_cuda && tools/same_bits.py --out before.txt      # before the change
    tools/build.sh release ingot ingot_simulated_cuda && tools/same_bits.py --against before.txt  # after it

Trains small runs of 20 steps: every preset in a tiny form, every optimizer, precision, head, recompute policy and kind of
attention, every layout on 2 and 4 ranks (with mpirun), and the simulated device, alone and in layouts. Prints a line
per run: its name, the SHA-256 of its metrics (losses, gradient norms, parameter norms), that of its last checkpoint and that of
the text that it generated, if any. The hashes depend on the processor and on the version of oneDNN, so they can be
compared only on one machine and are not stored in the repository.
With --against, exits with 1 if a line differs or is missing. --only PATTERN selects the runs whose name matches.
"""
import argparse
import concurrent.futures
import dataclasses
import fnmatch
import hashlib
import json
import math
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent

# Settings that make a preset tiny.
TINY = ["model.layers=2", "model.heads=4", "model.kv_heads=0", "model.head_dim=0", "model.width=32", "model.ffn=64",
        "model.context=32", "model.full_layers=[]", "model.vocab=0", "data.tokenizer=bpe", "data.tokenizer_vocab=384", "train.batch_size=2",
        "train.grad_accum=2", "train.batch_ramp=[]", "train.max_time=0s", "train.max_tokens=0", "parallel.dp=1", "parallel.tp=1",
        "parallel.fsdp=1", "model.mlp_only_layers=[]", "model.value_embeddings=0", "model.rope_dims=0"]
RUN = ["train.steps=20", "train.stop_at=0", "train.stats_every=7", "train.threads=1", "eval.every=10",
       "eval.max_tokens=512", "checkpoint.every=10", "checkpoint.keep=1", "sample.count=0", "head.raw_ce_every=5", "parallel.unit_costs=counted",
       "data.val=[]"]
MUON = 'optimizer.group=[{roles = ["matrix"], kind = "muon"%s}]'

# Variants of the LLaMA of tiny-llama and of the GPT-2 of tiny-gpt2.
VARIANTS = {
    "optimizer-sgd": ["optimizer.kind=sgd"],
    "optimizer-momentum": ["optimizer.kind=momentum"],
    "optimizer-nesterov": ["optimizer.kind=momentum", "optimizer.nesterov=true"],
    "optimizer-adam": ["optimizer.kind=adam"],
    "optimizer-adamw": ["optimizer.kind=adamw"],
    "optimizer-adamw8bit": ["optimizer.kind=adamw8bit"],
    "optimizer-adafactor": ["optimizer.kind=adafactor"],
    "optimizer-lion": ["optimizer.kind=lion"],
    "optimizer-muon": [MUON % ""],
    "optimizer-normuon": [MUON % ", normuon = true, cautious_decay = true"],
    "optimizer-polar-express": [MUON % ', newton_schulz = "polar_express", newton_schulz_dtype = "f32"'],
    "optimizer-muon-fused": [MUON % ", split_fused = false"],
    "optimizer-ema": ["optimizer.ema=0.9"],
    "optimizer-clip-off": ["optimizer.grad_clip=0"],
    "optimizer-clip-tight": ["optimizer.grad_clip=0.1"],
    "whole-speedrun": ["model.layers=4", "model.positions=rope", "model.norm=rmsnorm_weightless", "model.mlp=relu2", "model.qk_norm=true", "model.tied=false",
                       "model.embedding_norm=true", "model.input_mix=true", "model.skips=true", "model.value_embeddings=1",
                       "model.mlp_only_layers=[2]", "model.rope_dims=4", "model.window=24",
                       'schedule.window=["rest linear to 24"]', "schedule.window_multiple=8"],
    "gpt-j": ["model.parallel_residual=true", "model.positions=rope", "model.rope_dims=4", "model.norm=layernorm", "model.bias=true"],
    "precision-bf16": ["precision.compute=bf16"],
    "precision-f16": ["precision.compute=f16", "precision.loss_scale_init=16777216", "precision.loss_scale_interval=4"],
    "precision-bf16-stochastic": ["precision.compute=bf16", "precision.master=bf16_stochastic"],
    "precision-bf16-tail": ["precision.compute=bf16", "precision.master=bf16_tail"],
    "precision-tail-8bit": ["precision.compute=bf16", "precision.master=bf16_tail", "optimizer.kind=adamw8bit"],
    "fp8-tensorwise": ["precision.compute=bf16", "precision.fp8=tensorwise"],
    "fp8-rowwise": ["precision.compute=bf16", "precision.fp8=rowwise"],
    "fp8-rowwise-gw-hp": ["precision.compute=bf16", "precision.fp8=rowwise_gw_hp"],
    "fp8-delayed": ["precision.compute=bf16", "precision.fp8=delayed", "precision.fp8_amax_history=4"],
    "head-chunked": ["head.kind=chunked"],
    "head-kahan": ["head.kind=chunked", "head.accumulation=kahan"],
    "head-recompute": ["head.kind=recompute"],
    "head-filter": ["head.kind=recompute", "head.filter=0.01"],
    "head-bf16": ["head.precision=bf16"],
    "head-fp8-static": ["precision.compute=bf16", "head.precision=fp8"],
    "head-fp8-current": ["precision.compute=bf16", "head.precision=fp8", "head.fp8_scaling=current"],
    "head-z-loss": ["head.z_loss=0.001", "head.label_smoothing=0.1"],
    "head-bf16-logits": ["precision.compute=bf16", "head.loss_dtype=bf16_logits"],
    "head-tanh": ["model.cap=tanh", "model.cap_a=15"],
    "recompute-none": ["activations.policy=none"],
    "recompute-selective": ["activations.policy=selective", 'activations.parts=["norms", "activation", "attention"]'],
    "recompute-mlp": ["activations.policy=selective", 'activations.parts=["mlp", "embedding"]'],
    "recompute-block": ["activations.policy=block"],
    "recompute-every-k": ["activations.policy=every_k", "activations.k=2"],
    "recompute-sqrt": ["activations.policy=sqrt"],
    "recompute-auto": ["activations.policy=auto", "activations.budget=300000"],
    "schedule-wsd": ["schedule.kind=wsd", "schedule.floor=0.1"],
    "batch-ramp": ['train.batch_ramp=["1 until 640"]'],
    "dropout": ["model.dropout=0.1", "data.document_mask=true"],
    "epochs": ["data.order=epochs"],
    "tied": ["model.tied=true"],
    "untied": ["model.tied=false"],
    "guard-skip": ["guard.spike=skip", "guard.spike_window=16", "guard.spike_threshold=1.5", "guard.max_skips=1000"],
    "guard-rollback": ["guard.non_finite=rollback", "guard.spike=rollback", "guard.spike_window=16",
                       "guard.spike_threshold=6"],
}
# Kinds of attention and of blocks, all of tiny-llama. SAMPLES also generates text, with the cache of keys and values.
SAMPLES = ["sample.count=2", "sample.tokens=40", "sample.every=10"]
YARN = ["model.rope_scaling=yarn", "model.rope_factor=4", "model.rope_original_context=16"]
MODELS = {
    "grouped-kv": ["model.kv_heads=2"],
    "one-kv": ["model.kv_heads=1"],
    "qkv-bias": ["model.qkv_bias=true", "model.kv_heads=2"],
    "qk-norm": ["model.qk_norm=true", "model.kv_heads=2"],
    "qk-gain": ["model.qk_norm=true", "model.qk_norm_gain=true", "model.kv_heads=2"],
    "qk-width": ["model.qk_norm=true", "model.qk_norm_over=width", "model.qk_norm_gain=true"],
    "norm-after": ["model.norm_place=after"],
    "olmo2": ["model.norm_place=after", "model.qk_norm=true", "model.qk_norm_over=width", "model.qk_norm_gain=true"],
    "window": ["model.window=8", "model.full_layers=[1]"],
    "nope": ["model.nope_every=2"],
    "yarn": YARN,
    "head-dim": ["model.head_dim=16", "model.kv_heads=2"],
    "documents": ["data.document_mask=true", "model.kv_heads=2"],
}
# How each kind is trained on one rank, and on the simulated device where its name is in ON_DEVICE_TOO.
STYLES = {
    "f32": [],
    "bf16-block": ["precision.compute=bf16", "activations.policy=block"],
}
# Kinds in layouts: name -> keys. The number of ranks is the product of the layout's degrees.
FSDP, PP, TP, SP = "parallel.fsdp=2", "parallel.pp=2", "parallel.sequence_parallel=false", "parallel.sequence_parallel=true"
IN_LAYOUTS = {
    "tp grouped-kv": ["parallel.tp=2", SP] + MODELS["grouped-kv"],
    "tp shared-kv": ["parallel.tp=2", TP] + MODELS["one-kv"],
    "tp-sp shared-kv bias": ["parallel.tp=2", SP, "model.qkv_bias=true"] + MODELS["one-kv"],
    "tp4 shared-kv muon": ["parallel.tp=4", MUON % ""] + MODELS["grouped-kv"],
    "tp qk-gain": ["parallel.tp=2", TP] + MODELS["qk-gain"],
    "tp-sp qk-gain": ["parallel.tp=2", SP] + MODELS["qk-gain"],
    "tp-sp norm-after": ["parallel.tp=2", SP] + MODELS["norm-after"],
    "fsdp qk-gain block": [FSDP, "activations.policy=block"] + MODELS["qk-gain"],
    "fsdp window": [FSDP] + MODELS["window"],
    "pp documents": [PP] + MODELS["documents"],
    "pp gpipe documents": [PP, "parallel.schedule=gpipe"] + MODELS["documents"],
    "pp block": [PP, "activations.policy=block"],
    "pp selective": [PP] + VARIANTS["recompute-selective"],
    "pp sqrt": [PP, "activations.policy=sqrt"],
    "pp interleaved block": [PP, "parallel.schedule=interleaved", "parallel.chunks=2", "activations.policy=block"],
    "pp norm-after tied": [PP, "model.tied=true"] + MODELS["norm-after"],
    "fsdp-pp gpipe block": [FSDP, PP, "parallel.schedule=gpipe", "activations.policy=block"],
    "tp-pp shared-kv": ["parallel.tp=2", PP] + MODELS["one-kv"],
    "tp samples": ["parallel.tp=2"] + MODELS["grouped-kv"] + SAMPLES,
    "fsdp samples": [FSDP] + MODELS["qk-gain"] + SAMPLES,
}
# Layouts and graphs on the simulated device.
GRAPH = "train.graph=true"
ON_DEVICES = {
    "graph": [GRAPH],
    "graph bf16 documents": [GRAPH, "precision.compute=bf16", "data.document_mask=true"],
    "graph fp8-tensorwise": [GRAPH] + VARIANTS["fp8-tensorwise"],
    "graph fp8-delayed block": [GRAPH, "activations.policy=block"] + VARIANTS["fp8-delayed"],
    "dp": ["parallel.dp=2"],
    "fsdp": [FSDP],
    "fsdp fp8": [FSDP] + VARIANTS["fp8-tensorwise"],
    "fsdp graph": [FSDP, GRAPH],
    "tp": ["parallel.tp=2", TP],
    "tp-sp qk-gain": ["parallel.tp=2", SP, "precision.compute=bf16"] + MODELS["qk-gain"],
    "tp fp8": ["parallel.tp=2"] + VARIANTS["fp8-rowwise"],
    "pp": [PP],
    "pp fp8 documents": [PP, "data.document_mask=true"] + VARIANTS["fp8-tensorwise"],
    "pp graph": [PP, GRAPH],
    "samples": MODELS["window"] + SAMPLES,
    "samples graph": [GRAPH] + MODELS["grouped-kv"] + SAMPLES,
}
ON_DEVICE_TOO = ["grouped-kv", "qk-gain", "norm-after", "window", "yarn", "documents"]
# Layouts by number of ranks; each layout trains every variant of ON_RANKS.
LAYOUTS = {
    "2": {
        "dp": ["parallel.dp=2"],
        "dp-bf16": ["parallel.dp=2", "parallel.payload=bf16", "parallel.error_feedback=true"],
        "fsdp": ["parallel.fsdp=2"],
        "fsdp-gradients": ["parallel.fsdp=2", "parallel.fsdp_shards=gradients"],
        "tp": ["parallel.tp=2", "parallel.sequence_parallel=false"],
        "tp-sp": ["parallel.tp=2"],
        "pp-gpipe": ["parallel.pp=2", "parallel.schedule=gpipe"],
        "pp-1f1b": ["parallel.pp=2"],
        "pp-interleaved": ["parallel.pp=2", "parallel.schedule=interleaved", "parallel.chunks=2"],
    },
    "4": {
        "dp": ["parallel.dp=4"],
        "hsdp": ["parallel.dp=2", "parallel.fsdp=2"],
        "fsdp": ["parallel.fsdp=4"],
        "tp": ["parallel.tp=4"],
        "dp-tp": ["parallel.dp=2", "parallel.tp=2"],
        "fsdp-tp": ["parallel.fsdp=2", "parallel.tp=2"],
        "pp": ["parallel.pp=4"],
        "dp-pp": ["parallel.dp=2", "parallel.pp=2"],
        "fsdp-pp": ["parallel.fsdp=2", "parallel.pp=2", "parallel.schedule=gpipe"],
        "tp-pp": ["parallel.tp=2", "parallel.pp=2", "parallel.schedule=interleaved", "parallel.chunks=2"],
    },
}
ON_RANKS = {
    "adamw": [],
    "bf16-muon": ["precision.compute=bf16", MUON % ", normuon = true"],
    "f16-8bit": ["precision.compute=f16", "optimizer.kind=adamw8bit", "precision.loss_scale_init=16777216",
                 "precision.loss_scale_interval=4"],
    "fp8": ["precision.compute=bf16", "precision.fp8=delayed", "head.precision=fp8", "activations.policy=block"],
    "adafactor": ["precision.compute=bf16", "optimizer.kind=adafactor", "head.kind=chunked", "optimizer.ema=0.9"],
    "tail": ["precision.compute=bf16", "precision.master=bf16_tail", "model.dropout=0.1"],  # replicas only
}
ON_DEVICE = ["optimizer-adamw", "optimizer-adamw8bit", "optimizer-adafactor", "optimizer-lion", "optimizer-momentum",
             "optimizer-normuon", "optimizer-ema", "precision-bf16", "precision-f16", "precision-bf16-stochastic",
             "precision-bf16-tail", "fp8-tensorwise", "fp8-rowwise", "fp8-delayed", "head-chunked", "head-fp8-static",
             "head-fp8-current", "head-z-loss", "recompute-selective", "recompute-block", "recompute-sqrt", "dropout",
             "guard-skip"]


def text() -> str:
    """Returns sentences of invented words, the same on every machine."""
    state = 1
    def draw(n):
        nonlocal state
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        return (state >> 33) % n
    syllables = ["ka", "lo", "mi", "ne", "ru", "sta", "ve", "tor", "an", "el", "is", "om"]
    words = ["".join(syllables[draw(12)] for _ in range(1 + draw(3))) for _ in range(300)]
    lines = []
    for _ in range(2500):
        chosen = [words[min(draw(300), draw(300))] for _ in range(4 + draw(9))]
        lines.append(" ".join(chosen).capitalize() + ".")
    return "\n".join(lines) + "\n"


@dataclasses.dataclass(frozen=True)
class Case:
    name: str
    preset: str
    keys: tuple[str, ...] = ()
    on_device: bool = False  # on the simulated device
    has_int8: bool = False   # evaluates and generates with weights of 8 bits at the end

    def __init__(self, name, preset, keys=(), on_device=False, has_int8=False):
        for field, value in (("name", name), ("preset", preset), ("keys", tuple(keys)), ("on_device", on_device),
                             ("has_int8", has_int8)):
            object.__setattr__(self, field, value)

    def settings(self) -> list[str]:
        """Returns the settings that are made with --set, in order."""
        return TINY + RUN + list(self.keys) + (["train.device=cuda"] if self.on_device else [])

    def ranks(self) -> int:
        degrees = dict(key.split("=", 1) for key in TINY + list(self.keys) if key.startswith("parallel."))
        return math.prod(int(degrees.get(f"parallel.{axis}", 1)) for axis in ("dp", "fsdp", "tp", "pp"))


def cases():
    """Yields every run."""
    for preset in sorted(p.stem for p in (ROOT / "configs").glob("*.toml")):
        yield Case(f"preset {preset}", preset)
    for base in ("tiny-llama", "tiny-gpt2"):
        for name, keys in VARIANTS.items():
            yield Case(f"1 rank {base} {name}", base, keys)
        for ranks, layouts in LAYOUTS.items():
            for layout, layout_keys in layouts.items():
                for name, keys in ON_RANKS.items():
                    yield Case(f"{ranks} ranks {base} {layout} {name}", base, keys + layout_keys + ["model.layers=4"])
        for name in ON_DEVICE if base == "tiny-llama" else ON_DEVICE[:10:2]:
            yield Case(f"device {base} {name}", base, VARIANTS[name], on_device=True)
    for name, keys in MODELS.items():
        for style, style_keys in STYLES.items():
            yield Case(f"model {name} {style}", "tiny-llama", keys + style_keys + (SAMPLES if style == "f32" else []))
        if name in ON_DEVICE_TOO:
            yield Case(f"device model {name}", "tiny-llama", keys + STYLES["bf16-block"], on_device=True)
    for name, keys in IN_LAYOUTS.items():
        yield Case(f"layout {name}", "tiny-llama", keys + ["model.layers=4"])
    for name, keys in ON_DEVICES.items():
        yield Case(f"device layout {name}", "tiny-llama", keys + ["model.layers=4"], on_device=True)
    for name in ("grouped-kv", "qkv-bias"):
        yield Case(f"int8 {name}", "tiny-llama", MODELS[name], has_int8=True)
    yield Case("int8 tied tiny-gpt2", "tiny-gpt2", ["model.tied=true"], has_int8=True)


def metrics_hash(run: pathlib.Path, has_stages: bool) -> str:
    """Returns the hash of every number that training computed, without times, speeds and memory.

    Pipeline stages are chosen by measured times, so the order in which their norms are summed may vary between runs.
    """
    kept = hashlib.sha256()
    wanted = ["step", "loss", "lr", "val_loss", "top1", "loss_scale", "raw_ce_fp32", "event", "tokens"]
    if not has_stages:
        wanted += ["grad_norm", "clip"]
    for name in ["metrics.jsonl"] if has_stages else ["metrics.jsonl", "params.jsonl"]:
        for line in (run / name).read_text().splitlines():
            row = json.loads(line)
            if name == "metrics.jsonl":
                row = {key: row[key] for key in wanted if key in row}
            kept.update(json.dumps(row, sort_keys=True).encode())
    return kept.hexdigest()


def checkpoint_hash(run: pathlib.Path) -> str:
    newest = sorted((run / "checkpoints").glob("step-*"))[-1]
    kept = hashlib.sha256(newest.name.encode())
    for file in sorted(newest.iterdir()):
        if file.name in ("MANIFEST.json", "config.toml"):  # these contain times, and keys that may be renamed
            continue
        kept.update(file.name.encode() + b"\0" + file.read_bytes())
    return kept.hexdigest()


def text_hash(options, case: Case, run: pathlib.Path) -> str:
    """Returns the hash of the text that the run generated, and of what its weights of 8 bits give."""
    kept = hashlib.sha256()
    for file in sorted((run / "samples").glob("*")):
        kept.update(file.name.encode() + b"\0" + file.read_bytes())
    if case.has_int8:
        for arguments in (["eval", str(run), "--data", str(run.parent / "text.txt"), "--max-tokens", "512", "--json"],
                          ["generate", str(run), "--prompt", "Kalo ", "--tokens", "40", "--json"]):
            done = subprocess.run([options.program, *arguments, "--weights", "int8"], capture_output=True, text=True, check=True,
                                  env=dict(os.environ, OMP_NUM_THREADS="1"))
            for line in done.stdout.splitlines():
                row = {key: value for key, value in json.loads(line).items() if key in ("loss", "top1", "text")}
                kept.update(json.dumps(row, sort_keys=True).encode())
    return kept.hexdigest()


def train(case: Case, options, folder: pathlib.Path) -> str:
    out = folder / case.name.replace(" ", "-")
    program = options.simulated if case.on_device else options.program
    command = [program, "train", case.preset, "--data", str(folder / "text.txt"), "--out", str(out)]
    for key in case.settings():
        command += ["--set", key]
    environment = dict(os.environ, OMP_NUM_THREADS="1", OMP_WAIT_POLICY="passive", INGOT_SIMULATED_ORDER="ascending")
    if case.ranks() > 1:
        command = ["mpirun", "-n", str(case.ranks())] + command
        environment.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                           OMPI_MCA_rmaps_base_oversubscribe="1",
                           PRTE_MCA_rmaps_default_mapping_policy=":oversubscribe", OMPI_MCA_btl_vader_single_copy_mechanism="none")
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        # An unsupported combination must be refused with the same message.
        message = [line for line in (done.stdout + done.stderr).splitlines() if line.startswith("ingot: ")]
        return f"{case.name}: exit {done.returncode}: {message[0] if message else (done.stdout + done.stderr)[-300:]}"
    has_stages = any(key.startswith("parallel.pp=") for key in case.keys)
    line = f"{case.name}: metrics {metrics_hash(out, has_stages)} checkpoint {checkpoint_hash(out)}"
    if case.has_int8 or (out / "samples").exists():
        line += f" text {text_hash(options, case, out)}"
    shutil.rmtree(out)
    return line


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=str(ROOT / "build/release/ingot"))
    parser.add_argument("--simulated", default=str(ROOT / "build/release/tests/ingot_simulated_cuda"))
    parser.add_argument("--only", default="", help="runs whose name has this pattern")
    parser.add_argument("--out", type=pathlib.Path, help="write the lines here too")
    parser.add_argument("--against", type=pathlib.Path, help="compare with the lines of this file")
    parser.add_argument("-j", type=int, default=os.cpu_count(), help="runs at a time")
    options = parser.parse_args()
    chosen = [case for case in cases() if fnmatch.fnmatch(case.name, f"*{options.only}*")]
    before = dict(line.split(": ", 1) for line in options.against.read_text().splitlines()) if options.against else None
    lines, differences = [], 0
    with tempfile.TemporaryDirectory() as name, concurrent.futures.ThreadPoolExecutor(options.j) as pool:
        folder = pathlib.Path(name)
        (folder / "text.txt").write_text(text())
        for line in pool.map(lambda case: train(case, options, folder), chosen):
            lines.append(line)
            run, result = line.split(": ", 1)
            if before is None:
                print(line, flush=True)
            elif before.get(run) != result:
                differences += 1
                print(f"DIFFERS {run}\n  before: {before.get(run, 'not there')}\n  now:    {result}", flush=True)
    if options.out:
        options.out.write_text("\n".join(lines) + "\n")
    refused = sum(": exit " in line for line in lines)
    print(f"same_bits: {len(lines)} runs, {refused} refused" +
          ("" if before is None else f", {differences} differ from {options.against}"))
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
