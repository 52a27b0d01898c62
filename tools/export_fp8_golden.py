#!/usr/bin/env python3
"""Writes tests/golden/fp8/casts.txt: for each 8-bit float, the SHA-256 of the 65536 codes that PyTorch's cast
returns for every bf16 bit pattern in order, clamped to the largest finite value before the cast, with NaN as 0x7f."""
import hashlib
import pathlib

import torch

FORMATS = {"f8e4m3": torch.float8_e4m3fn, "f8e5m2": torch.float8_e5m2}


def codes(dtype):
    patterns = torch.arange(65536, dtype=torch.int32).to(torch.uint16).view(torch.bfloat16)
    values = patterns.to(torch.float32)
    limit = torch.finfo(dtype).max
    codes = values.clamp(-limit, limit).to(dtype).view(torch.uint8)
    return torch.where(values.isnan(), torch.tensor(0x7F, dtype=torch.uint8), codes)


def main():
    target = pathlib.Path(__file__).parent.parent / "tests/golden/fp8/casts.txt"
    lines = [f"{name} {hashlib.sha256(codes(dtype).numpy().tobytes()).hexdigest()}\n" for name, dtype in FORMATS.items()]
    target.write_text("".join(lines))


if __name__ == "__main__":
    main()
