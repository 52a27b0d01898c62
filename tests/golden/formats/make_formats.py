#!/usr/bin/env python3
"""Makes the golden files of tests/formats with the reference implementations.

mixed.safetensors, hf_gpt2.json, hf_llama.json: pip install torch safetensors transformers. Run: make_formats.py FOLDER
"""
import pathlib
import sys

import torch
from safetensors.torch import save_file
from transformers import GPT2Config, LlamaConfig

folder = pathlib.Path(sys.argv[1])
tensors = {
    "b.weight": torch.arange(6, dtype=torch.float32).reshape(2, 3) / 4,
    "a.weight": torch.tensor([-1.5, 2.0], dtype=torch.float32),
    "half": torch.tensor([[1.0], [0.5], [-2.0]], dtype=torch.bfloat16),
    "h16": torch.tensor([3.0], dtype=torch.float16),
    "mask": torch.tensor([1, 0, 255], dtype=torch.uint8),
    "ids": torch.tensor([-7, 9], dtype=torch.int64),
    "n": torch.tensor([5], dtype=torch.int32),
    "fp8": torch.tensor([1.0, -2.0], dtype=torch.float8_e4m3fn),
    "scalar": torch.tensor(2.5, dtype=torch.float32),
    "empty": torch.zeros(0, 4, dtype=torch.float32),
    'quote"\\ é\n': torch.tensor([1], dtype=torch.uint8),
}
save_file(tensors, folder / "mixed.safetensors", metadata={"format": "pt"})

GPT2Config(
    n_layer=3, n_head=4, n_embd=32, n_positions=64, vocab_size=100, bos_token_id=99, eos_token_id=99, dtype="bfloat16"
).to_json_file(folder / "hf_gpt2.json", use_diff=False)
LlamaConfig(
    num_hidden_layers=3,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=16,
    hidden_size=32,
    intermediate_size=96,
    vocab_size=100,
    max_position_embeddings=64,
    rope_parameters={"rope_type": "default", "rope_theta": 500000.0},
    mlp_bias=True,
    bos_token_id=1,
    eos_token_id=2,
    dtype="float32",
).to_json_file(folder / "hf_llama.json", use_diff=False)
