#!/usr/bin/env python3
"""Writes llama_rope.txt: cos and sin of Hugging Face transformers' LlamaRotaryEmbedding, to compare rope_table with.

    pip install torch transformers && python export_rope.py > llama_rope.txt
"""
import torch
import transformers
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

print(f"# transformers {transformers.__version__}, torch {torch.__version__}: theta R position i cos sin")
for theta, dim in [(10000.0, 32), (10000.0, 64), (500000.0, 128)]:
    config = LlamaConfig(hidden_size=dim, num_attention_heads=1, head_dim=dim,
                         rope_parameters={"rope_type": "default", "rope_theta": theta})
    positions = torch.tensor([[0, 1, 31, 257, 2047]])
    cos, sin = LlamaRotaryEmbedding(config)(torch.zeros(1, 5, dim), positions)
    for t, position in enumerate(positions[0].tolist()):
        for i in range(0, dim // 2, 3):
            print(f"{theta:g} {dim} {position} {i} {cos[0, t, i].item():.9g} {sin[0, t, i].item():.9g}")
