#!/usr/bin/env python3
"""Compares Ingot with Hugging Face transformers on small random models of every family that both know.

  python tools/check_hf_families.py --ingot build/release/ingot [--only NAME ...] [--golden tests/golden/hf]

For each model the script saves a folder as transformers does (one file or several with an index; float32, float16 or
bfloat16; tied or untied; grouped heads), and compares
- the loss of `ingot eval FOLDER --json` with that of transformers on the same tokens, within 2e-5 of it,
- the loss of a checkpoint of `ingot train --init FOLDER` (one step at a rate of 1e-30) with it, when transformers has
  loaded the checkpoint, which must be of the same family.
For models that Ingot trains itself it compares `ingot eval RUN` with transformers on the folder of `ingot export RUN
--hf FOLDER`; those that no family has run modeling_ingot.py.
All weights are random, also norms and biases, so a tensor that is left out, swapped or not added changes the loss.

--golden writes the smallest model of each family with its loss into a folder, for the tests that run without Python.

Needs: pip install -r tools/requirements-oracle.txt. The script does not use the network.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRANSFORMERS_OFFLINE"] = "1"

import torch  # noqa: E402
import transformers  # noqa: E402
from tokenizers import Tokenizer, decoders, models, pre_tokenizers  # noqa: E402

sys.path.insert(0, str(Path(__file__).parent))
from check_hf_export import load_model, measure  # noqa: E402

# Losses are means of some thousand tokens whose rounding errors, of about 1e-6 each, mostly cancel.
TOLERANCE = 2e-5
SHAPE = dict(vocab_size=300, hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=64)
LLAMA3 = dict(rope_type="llama3", rope_theta=10000.0, factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=16)
LINEAR = dict(rope_type="linear", rope_theta=10000.0, factor=4.0)
# With heads of 16, frequencies 0 and 1 stay, 2 to 4 are interpolated, and 5 to 7 are scaled.
YARN = dict(rope_type="yarn", rope_theta=100.0, factor=4.0, original_max_position_embeddings=64, beta_fast=4.0)

# name: class of the configuration, its changes of SHAPE, and how the folder is saved
MODELS = {
    "gpt2": ("GPT2Config", dict(vocab_size=300, n_embd=32, n_layer=3, n_head=4, n_positions=64), {}),
    "gpt2_gelu_f16_sharded": ("GPT2Config", dict(vocab_size=300, n_embd=48, n_layer=2, n_head=3, n_positions=40,
                                                 n_inner=80, activation_function="gelu"),
                              dict(dtype="float16", shard="30KB")),
    "llama": ("LlamaConfig", {}, {}),
    "llama_tied_bias_bf16": ("LlamaConfig", dict(tie_word_embeddings=True, attention_bias=True, mlp_bias=True,
                                                 num_key_value_heads=4), dict(dtype="bfloat16")),
    "llama3_rope_sharded": ("LlamaConfig", dict(rope_parameters=LLAMA3, head_dim=16), dict(shard="20KB")),
    "llama_linear_rope": ("LlamaConfig", dict(rope_parameters=LINEAR, num_key_value_heads=1), {}),
    "llama_yarn_mscale": ("LlamaConfig", dict(rope_parameters=dict(YARN, mscale=1.0, mscale_all_dim=0.7), head_dim=16), {}),
    "yarn_qwen2": ("Qwen2Config", dict(rope_parameters=YARN, hidden_size=64), {}),
    "qwen3_yarn_factor": ("Qwen3Config", dict(rope_parameters=dict(YARN, attention_factor=1.5), head_dim=16), {}),
    "smollm3_yarn": ("SmolLM3Config", dict(rope_parameters=YARN, hidden_size=64, no_rope_layer_interval=2,
                                           pad_token_id=None), {}),
    "mistral": ("MistralConfig", dict(sliding_window=9), {}),
    "mistral_full_f16": ("MistralConfig", dict(sliding_window=None, head_dim=12, num_attention_heads=3,
                                               num_key_value_heads=3), dict(dtype="float16")),
    "qwen2": ("Qwen2Config", {}, {}),
    "qwen2_window_tied_bf16": ("Qwen2Config", dict(use_sliding_window=True, sliding_window=7, max_window_layers=0,
                                                   tie_word_embeddings=True), dict(dtype="bfloat16", shard="20KB")),
    "qwen2_last_windows": ("Qwen2Config", dict(use_sliding_window=True, sliding_window=7, max_window_layers=2), {}),
    "qwen3_some_windows": ("Qwen3Config", dict(head_dim=12, use_sliding_window=True, sliding_window=7, layer_types=[
        "sliding_attention", "full_attention", "sliding_attention"]), {}),
    "smollm3_windows": ("SmolLM3Config", dict(use_sliding_window=True, sliding_window=7, no_rope_layer_interval=2,
                                              pad_token_id=None), {}),
    "smollm3_listed_windows": ("SmolLM3Config", dict(use_sliding_window=True, sliding_window=7, no_rope_layers=[1, 1, 1],
                                                     layer_types=["full_attention", "sliding_attention", "full_attention"],
                                                     pad_token_id=None), {}),
    "qwen3": ("Qwen3Config", dict(head_dim=12), {}),
    "qwen3_tied_sharded_bf16": ("Qwen3Config", dict(head_dim=16, tie_word_embeddings=True, num_attention_heads=6,
                                                    num_key_value_heads=3),
                                dict(dtype="bfloat16", shard="20KB")),
    "smollm3": ("SmolLM3Config", dict(no_rope_layer_interval=2, num_hidden_layers=4, pad_token_id=None), {}),
    "olmo2": ("Olmo2Config", dict(pad_token_id=None), {}),
    "olmo2_tied_yarn_bf16": ("Olmo2Config", dict(tie_word_embeddings=True, num_attention_heads=6, num_key_value_heads=6,
                                                 hidden_size=96, rope_parameters=YARN, pad_token_id=None),
                             dict(dtype="bfloat16", shard="40KB")),
    "smollm3_untied_f16": ("SmolLM3Config", dict(no_rope_layer_interval=3, tie_word_embeddings=False,
                                                 pad_token_id=None), dict(dtype="float16")),
}
# Models of Ingot, the model_type of their export, and options of `ingot export`.
OWN = {
    "own_qk_norm": (["qk_norm=true"], "qwen3", ["--type", "f32"]),
    "own_olmo2": (["norm_place=after", "qk_norm=true", "qk_norm_over=width"], "olmo2", []),
    "own_norm_after": (["norm_place=after", "norm=layernorm", "bias=true", "qk_norm=true", "mlp=gelu_tanh"], "ingot", []),
    "own_qk_width": (["qk_norm=true", "qk_norm_over=width", "qk_norm_gain=true", "head_dim=12"], "ingot", []),
    "own_odd_heads": (["heads=3", "kv_heads=1", "head_dim=8"], "mistral", []),
    "own_speedrun": (["norm=rmsnorm_weightless", "mlp=relu2", "qk_norm=true", "tied=false", "cap=sigmoid", "cap_a=30"],
                     "ingot", ["--file-bytes", "20000"]),
    "own_whole_speedrun": (["norm=rmsnorm_weightless", "mlp=relu2", "qk_norm=true", "tied=false", "cap=sigmoid", "cap_a=30",
                            "layers=6", "embedding_norm=true", "input_mix=true", "skips=true", "value_embeddings=2",
                            "mlp_only_layers=[3]", "head_dim=12", "rope_dims=6"], "ingot", []),
    "own_gpt_j": (["norm=layernorm", "mlp=gelu_tanh", "bias=true", "parallel_residual=true", "rope_dims=4"], "ingot", []),
    "own_capped_gpt2": (["norm=layernorm", "positions=learned", "mlp=gelu_exact", "bias=true", "cap=tanh",
                         "kv_heads=4"], "ingot", []),
    "own_mixture": (["qkv_bias=true", "qk_norm=true", "qk_norm_gain=true", "window=9", "nope_every=2",
                     "rope_scaling=llama3", "rope_factor=4", "rope_original_context=16"], "ingot", []),
    "own_some_windows": (["mlp=relu2", "window=7", "layers=3", "full_layers=[0, 2]"], "ingot", []),
    "own_llama_some_windows": (["window=7", "layers=3", "full_layers=[1]"], "smollm3", []),
    "own_yarn": (["mlp=relu2", "head_dim=16", "nope_every=2", "layers=3", "rope_scaling=yarn", "rope_factor=4", "rope_theta=100",
                  "rope_original_context=64", "rope_beta_fast=4"], "ingot", []),
}
GOLDEN = dict(vocab_size=32, hidden_size=32, intermediate_size=24, num_hidden_layers=2, max_position_embeddings=24)
GOLDEN_GPT2 = dict(vocab_size=32, n_embd=32, n_layer=2, n_inner=24, n_positions=24)
# How golden models are saved if not as one file in float16.
GOLDEN_SAVED = {"qwen3": dict(dtype="bfloat16", shard="12KB")}
TEXT = "".join(chr(97 + (i * i + i // 7) % 26) + (" " if i % 5 == 0 else "") for i in range(200))


def fail(text):
    sys.exit(f"check_hf_families: {text}")


def make_tokenizer(alphabet):
    """A tokenizer whose tokens are these characters; without them, all bytes."""
    characters = alphabet or sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(characters)}, merges=[]))
    tokenizer.decoder = decoders.Fuse() if alphabet else decoders.ByteLevel()
    if not alphabet:
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return tokenizer


def make_model(config_class, changes, seed):
    shape = changes if config_class == "GPT2Config" else {**SHAPE, **changes}
    config = getattr(transformers, config_class)(bos_token_id=0, eos_token_id=0, **shape)
    model = transformers.AutoModelForCausalLM.from_config(config)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            noise = torch.randn(p.shape, generator=generator)
            is_gain = "norm" in name and name.endswith("weight") or ".ln_" in name and name.endswith("weight")
            p.copy_(1 + 0.3 * noise if is_gain else 0.25 * noise)
    return model


def save(model, tokenizer, folder, dtype="float32", shard="5GB"):
    shutil.rmtree(folder, ignore_errors=True)
    model.to(getattr(torch, dtype)).save_pretrained(folder, max_shard_size=shard)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "generation_config.json").unlink(missing_ok=True)


def loss_of(folder, ids):
    """The loss of the folder's weights in float32."""
    model = load_model(folder)
    total, _ = measure(model, ids, model.config.max_position_embeddings)
    return total / (len(ids) - 1), model.config.model_type


def run(ingot, *arguments):
    result = subprocess.run([ingot, *map(str, arguments)], capture_output=True, text=True, check=False)
    if result.returncode != 0:
        fail(f"{' '.join(map(str, arguments))}: {result.stderr.strip()}")
    return result.stdout


def close(what, got, want, tolerance=TOLERANCE):
    if not abs(got - want) <= tolerance * want:
        fail(f"{what}: the loss is {got}, that of transformers {want}")


def check(name, ingot, scratch, text):
    config_class, changes, saved = MODELS[name]
    tokenizer = make_tokenizer("")
    folder, run_folder = scratch / name, scratch / f"{name}-run"
    save(make_model(config_class, changes, seed=len(name)), tokenizer, folder, **saved)
    ids = torch.tensor(tokenizer.encode(text.read_text()).ids)
    want, family = loss_of(folder, ids)
    got = json.loads(run(ingot, "eval", folder, "--data", text, "--json"))["loss"]
    close(f"{name}: ingot eval", got, want)
    run(ingot, "train", "--init", folder, "--data", text, "--out", run_folder, *(
        word for key in ("train.steps=1", "optimizer.lr=1e-30", "schedule.warmup_steps=0", "sample.count=0",
                         "train.batch_size=1", "eval.max_tokens=64") for word in ("--set", key)))
    exported, exported_family = loss_of(next((run_folder / "checkpoints").glob("step-*")), ids)
    close(f"{name}: the checkpoint of train --init", exported, want)
    if exported_family != family:
        fail(f"{name}: the checkpoint of a {family} is a {exported_family}")
    print(f"{name}: {family}, loss {want:.6f}, ingot {got - want:+.1e}, exported {exported - want:+.1e}", flush=True)


def check_own(name, ingot, scratch, text):
    keys, family, options = OWN[name]
    run_folder, folder = scratch / name, scratch / f"{name}-hf"
    keys = ["layers=2", "heads=4", "kv_heads=2", "width=32", "ffn=48", "context=32", "init_std=0.2", *keys]
    keys = [f"model.{key}" for key in {key.split("=")[0]: key for key in keys}.values()]
    run(ingot, "train", "--data", text, "--out", run_folder, *(
        word for key in [*keys, "data.tokenizer=byte", "train.steps=8", "schedule.warmup_steps=0", "sample.count=0",
                         "optimizer.lr=0.02", "train.batch_size=2", "eval.max_tokens=64"] for word in ("--set", key)))
    want = json.loads(run(ingot, "eval", run_folder, "--data", text, "--json"))["loss"]
    run(ingot, "export", run_folder, "--hf", folder, *options)
    ids = torch.tensor(Tokenizer.from_file(str(folder / "tokenizer.json")).encode(text.read_text()).ids)
    got, exported_family = loss_of(folder, ids)
    close(f"{name}: the export", got, want)
    if exported_family != family:
        fail(f"{name}: the export is a {exported_family}, not a {family}")
    print(f"{name}: {family}, loss {want:.6f}, exported {got - want:+.1e}", flush=True)


def write_golden(name, folder):
    """Writes a tiny model and golden.json: the text's tokens and their mean loss in windows of the context."""
    config_class, changes, _ = MODELS[name]
    shape = dict(changes, **(GOLDEN_GPT2 if config_class == "GPT2Config" else GOLDEN))
    tokenizer = make_tokenizer(" abcdefghijklmnopqrstuvwxyz")
    save(make_model(config_class, shape, seed=7), tokenizer, folder, **GOLDEN_SAVED.get(name, dict(dtype="float16")))
    ids = tokenizer.encode(TEXT).ids
    loss, family = loss_of(folder, torch.tensor(ids))
    golden = {"family": family, "loss": loss, "text": TEXT, "transformers": transformers.__version__,
              "torch": torch.__version__}
    (folder / "golden.json").write_text(json.dumps(golden, indent=1) + "\n")
    for file in folder.iterdir():
        file.chmod(0o644)
    print(f"{folder}: {sum(f.stat().st_size for f in folder.iterdir())} bytes, loss {loss:.6f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ingot", default="build/release/ingot")
    parser.add_argument("--text", type=Path, default=Path("CONTRIBUTING.md"))
    parser.add_argument("--only", nargs="*", default=[*MODELS, *OWN], choices=[*MODELS, *OWN])
    parser.add_argument("--golden", type=Path, help="write golden models into this folder and end")
    args = parser.parse_args()
    torch.set_num_threads(2)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    if args.golden:
        for name in ("gpt2", "llama3_rope_sharded", "mistral", "qwen2", "qwen3", "smollm3", "olmo2", "yarn_qwen2"):
            write_golden(name, args.golden / name.split("_")[0])
        return
    with tempfile.TemporaryDirectory() as scratch:
        text = Path(scratch) / "text.txt"
        text.write_bytes(args.text.read_bytes()[:3000])
        for name in args.only:
            (check if name in MODELS else check_own)(name, args.ingot, Path(scratch), text)


if __name__ == "__main__":
    main()
