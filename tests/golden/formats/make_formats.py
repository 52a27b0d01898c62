#!/usr/bin/env python3
"""Makes mixed.safetensors with the reference implementation (pip install torch safetensors).

safetensors_test.cpp reads it and writes the same bytes. Run: make_formats.py FOLDER
"""
import pathlib
import sys

import torch
from safetensors.torch import save_file

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
