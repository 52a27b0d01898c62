#!/usr/bin/env python3
"""Writes tests/golden/formats/gguf: a small file by the package gguf, and its quantization of some numbers to q8_0.

    pip install gguf==0.19.0
    python tools/make_gguf_golden.py
"""
import pathlib

import gguf
import numpy as np

OUT = pathlib.Path(__file__).resolve().parent.parent / "tests/golden/formats/gguf"


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(3)
    scales = 10.0 ** rng.integers(-9, 5, size=(64, 1))
    numbers = (rng.standard_normal((64, 32)) * scales).astype(np.float32)
    numbers[0] = 0
    numbers[1] = np.linspace(-127, 127, 32).round() + 0.5 * np.sign(np.linspace(-127, 127, 32))  # halves
    numbers[1, 0] = 127
    numbers[2] = 1e-9  # a scale that f16 rounds to zero
    numbers[3] = np.float32(2.0) ** rng.integers(-20, 15, size=32)
    numbers.tofile(OUT / "numbers.f32")
    for kind in (gguf.GGMLQuantizationType.Q8_0, gguf.GGMLQuantizationType.BF16, gguf.GGMLQuantizationType.F16):
        gguf.quants.quantize(np.clip(numbers, -6e4, 6e4), kind).tofile(OUT / f"numbers.{kind.name.lower()}")
    writer = gguf.GGUFWriter(OUT / "small.gguf", "llama")
    writer.add_uint32("llama.block_count", 3)
    writer.add_float32("llama.rope.freq_base", 10000.0)
    writer.add_bool("tokenizer.ggml.add_bos_token", False)
    writer.add_array("tokenizer.ggml.tokens", ["a", "\u0120b", ""])
    writer.add_array("tokenizer.ggml.token_type", [1, 1, 3])
    writer.add_tensor("token_embd.weight", np.arange(6, dtype=np.float32).reshape(3, 2))
    writer.add_tensor("output_norm.weight", np.ones(2, dtype=np.float32))
    writer.add_tensor("blk.0.attn_q.weight", gguf.quants.quantize(numbers[:2], gguf.GGMLQuantizationType.Q8_0),
                      raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


main()
