#!/usr/bin/env python3
"""Trains a small model of every architecture that `ingot export --gguf` writes, and lets llama.cpp open the files.

  python tools/check_gguf_families.py --ingot build/release/ingot [--only NAME ...]

For each model and each type of numbers (f32, f16, bf16, q8_0), tools/check_gguf.py compares the tensors, the tokens of some
hostile texts and the loss with those of the checkpoint. The models have scaled rotary positions, norms after attention,
blocks without rotary positions, and a tokenizer of SentencePiece's kind, which this script makes.

Needs: pip install -r tools/requirements-llamacpp.txt. The script does not use the network.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

MARK = "\u2581"
YARN = ["rope_scaling=yarn", "rope_factor=4", "rope_theta=100", "rope_original_context=64"]
# name: preset, keys of the model, and whether the tokenizer is of SentencePiece's kind
MODELS = {
    "gpt2": ("tiny-gpt2", [], False),
    "llama": ("tiny-llama", [], False),
    "llama_sentencepiece": ("tiny-llama", ["kv_heads=1"], True),
    "qwen2": ("tiny-llama", ["qkv_bias=true"], False),
    "qwen2_wide_heads": ("tiny-llama", ["qkv_bias=true", "head_dim=48"], False),
    "llama_biased": ("tiny-llama", ["bias=true"], False),
    "llama3_rope": ("tiny-llama", ["rope_scaling=llama3", "rope_factor=4", "rope_original_context=16"], False),
    "linear_rope": ("tiny-llama", ["rope_scaling=linear", "rope_factor=4"], False),
    "yarn": ("tiny-llama", YARN, False),
    "qwen3_yarn": ("tiny-llama", ["qk_norm=true", "rope_attention_factor=1.3", *YARN], False),
    "olmo2": ("tiny-llama", ["norm_place=after", "qk_norm=true", "qk_norm_over=width", "qk_norm_gain=true"], False),
    "smollm3": ("tiny-llama", ["nope_every=4", "layers=4"], False),
}


def sentencepiece(text, tokens=400):
    """A tokenizer.json as transformers makes it of a SentencePiece model: a token's merges are all its splits into tokens."""
    words = Counter(MARK + word for word in text.split())
    pieces = {word: list(word) for word in words}
    ordered = sorted({c for word in words for c in word if c.isascii()} | {MARK})
    known = set(ordered)
    while len(ordered) < tokens:
        pairs = Counter()
        for word, count in words.items():
            for pair in zip(pieces[word], pieces[word][1:]):
                pairs[pair] += count
        left, right = max(sorted(pairs), key=lambda pair: pairs[pair] if set("".join(pair)) <= known else 0)
        if left + right not in known:
            ordered.append(left + right)
            known.add(left + right)
        for word, old in pieces.items():
            new, i = [], 0
            while i < len(old):
                joins = old[i:i + 2] == [left, right]
                new.append(left + right if joins else old[i])
                i += 2 if joins else 1
            pieces[word] = new
    special = ["<unk>", "<s>", "</s>"]
    vocab = {t: i for i, t in enumerate([*special, *(f"<0x{b:02X}>" for b in range(256)), *ordered])}
    merges = [[t[:i], t[i:]] for t in ordered for i in range(1, len(t)) if t[:i] in known and t[i:] in known]
    step = {"type": "Replace", "pattern": {"String": " "}, "content": MARK}
    undo = {"type": "Replace", "pattern": {"String": MARK}, "content": " "}
    return {"version": "1.0", "truncation": None, "padding": None, "post_processor": None, "pre_tokenizer": None,
            "added_tokens": [{"id": i, "content": t, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
                              "special": True} for i, t in enumerate(special)],
            "normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": MARK}, step]},
            "decoder": {"type": "Sequence", "decoders": [undo, {"type": "ByteFallback"}, {"type": "Fuse"},
                                                         {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
            "model": {"type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None, "end_of_word_suffix": None,
                      "fuse_unk": True, "byte_fallback": True, "ignore_merges": False, "vocab": vocab, "merges": merges}}


def run(*command):
    result = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    if result.returncode != 0:
        sys.exit(f"check_gguf_families: {' '.join(map(str, command))}: {result.stdout}{result.stderr}")
    return result.stdout


def check(name, ingot, text, scratch):
    preset, keys, is_sentencepiece = MODELS[name]
    tokenizer = []
    if is_sentencepiece:
        file = scratch / "tokenizer.json"
        file.write_text(json.dumps(sentencepiece(text.read_text())))
        tokenizer = ["--set", f"data.tokenizer={file}"]
    folder = scratch / name
    settings = ["train.steps=30", "sample.count=0", "model.init_std=0.1", *(f"model.{key}" for key in keys)]
    run(ingot, "train", preset, "--data", text, "--out", folder, *tokenizer, *(word for key in settings for word in ("--set", key)))
    expected = scratch / f"{name}.json"
    expected.write_text(run(ingot, "eval", folder, "--data", text, "--json"))
    for kind in ("f32", "f16", "bf16", "q8_0"):
        file = scratch / f"{name}.gguf"
        run(ingot, "export", folder, "--gguf", file, "--type", kind)
        print(f"{name}, {kind}:", run(sys.executable, Path(__file__).with_name("check_gguf.py"),
                                      *(folder / "checkpoints").glob("step-*"), file, "--ingot", ingot, "--text", text,
                                      "--expect", expected).strip().splitlines()[-1], flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ingot", type=Path, default=Path("build/release/ingot"))
    parser.add_argument("--text", type=Path, default=Path("CONTRIBUTING.md"))
    parser.add_argument("--only", nargs="*", default=list(MODELS), choices=list(MODELS))
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        text = Path(scratch) / "text.txt"
        text.write_bytes(args.text.read_bytes()[:20000])
        for name in args.only:
            check(name, args.ingot, text, Path(scratch))


if __name__ == "__main__":
    main()
