#!/usr/bin/env python3
"""Checks a GGUF file that `ingot export` wrote against the checkpoint that it was written from.

  python tools/check_gguf.py CHECKPOINT FILE.gguf --ingot build/release/ingot [--text TEXT --expect EVAL.json]

The package `gguf` reads the file. Its tensors must be those of CHECKPOINT/model.safetensors: permuted as llama.cpp's converter
permutes them, and quantized by the package bit by bit. If the package `llama_cpp` (llama-cpp-python) is installed, llama.cpp
must also give the tokens of the library that CHECKPOINT/tokenizer.json belongs to (by `ingot tokenizer encode`), for TEXT and
for some hostile texts, and on TEXT the loss of `ingot eval CHECKPOINT --data TEXT --json` (--expect), within the
rounding of the file's type.

Needs: pip install gguf==0.19.0 safetensors; the second part: pip install llama-cpp-python (it compiles llama.cpp).
"""
import argparse
import json
import math
import os
import struct
import subprocess
import sys
import tempfile
import unicodedata
from pathlib import Path

import gguf
import numpy as np
from gguf import quants
from safetensors.numpy import load_file

# Largest difference of the loss in nats: f32 sums in another order; one rounding of 2^-9 (bf16) or 2^-8 (q8_0, of a block's
# largest number) per weight is some thousandths of a small model's loss.
LOSS_TOLERANCE = {"F32": 2e-4, "F16": 1e-3, "BF16": 1e-2, "Q8_0": 2e-2}
HOSTILE = ["", " ", "  a", "tail \n  ", "\r\n\r\nx", "don't I'LL we'Ve", "12 123 1234567", "a\u0301b caf\u00e9 \u4e2d\u6587 \u0441\u043b\u043e\u0432\u043e",
           "\U0001f468\u200d\U0001f469 \u2764\ufe0f", "<|endoftext|> x", "\t\ttab", " " * 30 + "x", "=" * 40, "snake_case(x)[1];\n\n\treturn"]
NAMES = {"transformer.wte": "token_embd", "transformer.wpe": "position_embd", "transformer.ln_f": "output_norm", "lm_head": "output",
         "model.embed_tokens": "token_embd", "model.norm": "output_norm"}
BLOCK = {"ln_1": "attn_norm", "attn.c_attn": "attn_qkv", "attn.c_proj": "attn_output", "ln_2": "ffn_norm", "mlp.c_fc": "ffn_up",
         "mlp.c_proj": "ffn_down", "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
         "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "post_attention_layernorm": "ffn_norm",
         "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm", "post_feedforward_layernorm": "post_ffw_norm",
         "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}


def fail(text):
    sys.exit(f"check_gguf: {text}")


def permute(weights, heads):
    """convert_hf_to_gguf.py, LlamaModel.permute"""
    return (weights.reshape(heads, 2, weights.shape[0] // heads // 2, *weights.shape[1:])
            .swapaxes(1, 2).reshape(weights.shape))


def expected_tensors(folder, arch, heads, kv_heads):
    for name, value in load_file(folder / "model.safetensors").items():
        stem, kind = name.rsplit(".", 1)
        if stem in NAMES:
            ours = NAMES[stem]
        else:
            index, rest = stem.removeprefix("transformer.h.").removeprefix("model.layers.").split(".", 1)
            is_after = arch == "olmo2" and rest == "post_attention_layernorm"
            ours = f"blk.{index}.{'post_attention_norm' if is_after else BLOCK[rest]}"
        if stem.startswith("transformer.h.") and value.ndim == 2:
            value = value.T  # GPT-2 stores (in, out)
        if arch in ("llama", "smollm3") and ours.endswith(("attn_q", "attn_k")):
            value = permute(value, heads if ours.endswith("attn_q") else kv_heads)
        yield f"{ours}.{kind}", np.ascontiguousarray(value)


def field(reader, key):
    return reader.fields[key].contents() if key in reader.fields else None


def check_tensors(reader, folder):
    arch = field(reader, "general.architecture")
    heads = field(reader, f"{arch}.attention.head_count")
    found = {tensor.name: tensor for tensor in reader.tensors}
    types = set()
    for name, value in expected_tensors(folder, arch, heads, field(reader, f"{arch}.attention.head_count_kv") or heads):
        tensor = found.pop(name, None)
        if tensor is None:
            fail(f"no tensor {name}")
        if [int(n) for n in tensor.shape] != list(reversed(value.shape)):
            fail(f"{name} is {tensor.shape}, expected {value.shape} reversed")
        if value.ndim == 2:
            types.add(tensor.tensor_type.name)
        want = quants.quantize(value, tensor.tensor_type)
        if want.tobytes() != tensor.data.tobytes():
            fail(f"{name} ({tensor.tensor_type.name}) differs from what the package gguf makes of the checkpoint")
    for name, tensor in found.items():
        # llama.cpp's loss is the check of rope_freqs.
        if not ("norm" in name and np.all(tensor.data == 1)) and name != "rope_freqs.weight":
            fail(f"{name} is neither in the checkpoint nor a norm's gains of 1")
    return arch, len(reader.tensors), types


def tokens_of(ingot, folder, text):
    with tempfile.TemporaryDirectory() as scratch:
        Path(scratch, "text").write_bytes(text.encode())
        subprocess.run([ingot, "tokenizer", "encode", "--tokenizer", folder / "tokenizer.json", "--in", f"{scratch}/text", "--out", f"{scratch}/ids"],
                       check=True, stdout=subprocess.DEVNULL)
        data = Path(scratch, "ids").read_bytes()
    return list(struct.unpack(f"<{len(data) // 4}I", data))


def loss_of(llama, ids, context):
    """Mean loss as `ingot eval` has it: consecutive windows, each token but the first predicted once."""
    total = 0.0
    for begin in range(0, len(ids) - 1, context):
        window = ids[begin:begin + context + 1]
        llama.reset()
        llama.eval(window[:-1])
        logits = np.array(llama.scores[:len(window) - 1], dtype=np.float64)
        peak = logits.max(axis=1)
        total += float((peak + np.log(np.exp(logits - peak[:, None]).sum(axis=1)) - logits[np.arange(len(window) - 1), window[1:]]).sum())
    return total / (len(ids) - 1)


def check_llama_cpp(arguments, reader, arch, types):
    try:
        import llama_cpp
    except ImportError:
        print("check_gguf: llama-cpp-python is not installed: tokens and loss of llama.cpp NOT CHECKED")
        return
    context = field(reader, f"{arch}.context_length")
    # llama-cpp-python has defaults of its own for YaRN; negative numbers stand for those of the file.
    llama = llama_cpp.Llama(str(arguments.gguf), n_ctx=context, n_batch=context, logits_all=True, verbose=False, type_k=0, type_v=0,
                            n_threads=2, flash_attn=False, yarn_attn_factor=-1.0, yarn_beta_fast=-1.0, yarn_beta_slow=-1.0)
    text = arguments.text.read_text(encoding="utf-8") if arguments.text else ""
    # llama.cpp has Llama 3's expression for cl100k, which differs at the end of such a text only, and it leaves out NFC.
    tokenizer = (arguments.checkpoint / "tokenizer.json").read_text(encoding="utf-8")
    is_cl100k, has_nfc = r"\\s++\\z" in tokenizer, '"NFC"' in tokenizer
    for sample in HOSTILE + [text]:
        if has_nfc:
            sample = unicodedata.normalize("NFC", sample)
        if is_cl100k and sample.endswith("\n  "):
            continue
        theirs = llama.tokenize(sample.encode(), add_bos=False, special=False) if sample else []
        if theirs != tokens_of(arguments.ingot, arguments.checkpoint, sample):
            fail(f"llama.cpp's tokens of {ascii(sample[:60])} differ: {theirs[:20]}")
    if not arguments.expect:
        return
    loss, expected = loss_of(llama, tokens_of(arguments.ingot, arguments.checkpoint, text), context), json.loads(arguments.expect.read_text())["loss"]
    tolerance = max(LOSS_TOLERANCE[name] for name in types)
    print(f"check_gguf: llama.cpp {llama_cpp.__version__}: loss {loss:.6f}, ingot eval {expected:.6f}")
    if not math.isclose(loss, expected, abs_tol=tolerance):
        fail(f"the losses differ by more than {tolerance}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("gguf", type=Path)
    parser.add_argument("--ingot", type=Path, required=True)
    parser.add_argument("--text", type=Path)
    parser.add_argument("--expect", type=Path, help="output of `ingot eval CHECKPOINT --data TEXT --json`")
    arguments = parser.parse_args()
    reader = gguf.GGUFReader(arguments.gguf)
    arch, count, types = check_tensors(reader, arguments.checkpoint)
    print(f"check_gguf: {arguments.gguf.name}: {arch}, {count} tensors equal, matrices {', '.join(sorted(types))}")
    check_llama_cpp(arguments, reader, arch, types)


os.environ.setdefault("LLAMA_LOG_LEVEL", "error")
main()
