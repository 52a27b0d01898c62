#!/usr/bin/env python3
"""Compares what compiled kernels use with the limits below: tools/check_kernels.py [OBJECT...]

Without arguments the objects are those of build/release/cuda. cuobjdump prints what kernels use and c++filt names them. PyPI has
cuobjdump as nvidia-cuda-cuobjdump. Where a tool or the objects are missing, the exit code is 77.
"""
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
MOST_PARAMETERS = 32764  # bytes; what CUDA 12.1 and later pass to a kernel
FIRST_PARAMETER = 528  # its place in constant bank 0 of sm_90
# The most registers per thread, and bytes of local memory (stack), where spilled registers lie, of the kernels whose names have
# the pattern. The first row that fits holds.
LIMITS = (
    (r"norm::\w+<.*RowShape<\d+, 1024, ", 64, 392),  # rows of more than 8,192 elements
    (r"norm::\w+<.*RowShape<1, 256, 32>", 255, 0),  # rows without alignment
    (r"norm::backward<true, .*RowShape<8, \d+, 4>", 164, 0),  # LayerNorm, up to 1,024 and to 8,192 elements of 16 bits
    (r"norm::backward<", 128, 0),
    (r"norm::forward<", 80, 0),
    (r"(held_|bf16_)?rows_loss<", 64, 0),  # 1,024 threads of a block
    (r"encode|rotate", 120, 0),
    (r"sum_columns<", 48, 8),
    (r"elementwise|weights::update", 64, 0),
    (r"\b(forward|backward_q|backward_kv)<\d, ", 240, 16),  # attention without tensor cores
    (r"", 255, 0),
)


def skip(reason):
    print(f"kernels: NOT CHECKED: {reason}")
    sys.exit(77)


def main():
    objects = sys.argv[1:] or sorted(str(p) for p in (ROOT / "build/release/cuda").glob("*/*.o"))
    if not objects:
        skip("no objects in build/release/cuda: there is no CUDA toolkit, or INGOT_CUDA is OFF")
    for tool in ("cuobjdump", "c++filt"):
        if not shutil.which(tool):
            skip(f"no {tool} in PATH")
    used = []
    for path in objects:
        text = subprocess.run(["cuobjdump", "-res-usage", path], check=True, capture_output=True, text=True).stdout
        used += re.findall(r"Function (\S+):\s+REG:(\d+) STACK:(\d+) .*?CONSTANT\[0\]:(\d+)", text)
    if not used:
        sys.exit(f"kernels: cuobjdump names no kernels in {', '.join(objects)}")
    names = subprocess.run(["c++filt"], input="\n".join(u[0] for u in used), check=True, capture_output=True, text=True).stdout
    failed = False
    for name, (_, *numbers) in zip(names.splitlines(), used):
        name = name.replace("(anonymous namespace)::", "")
        registers, stack, constants = map(int, numbers)
        row = next(r for r in LIMITS if re.search(r[0], name))
        for what, number, limit in (("registers", registers, row[1]), ("bytes of stack", stack, row[2]),
                                    ("bytes of parameters", constants - FIRST_PARAMETER, MOST_PARAMETERS)):
            if number > limit:
                failed = True
                print(f"kernels: {name}: {number} {what}, at most {limit}; the limits are in tools/check_kernels.py")
    print(f"kernels: {len(used)} kernels of {len(objects)} files")
    sys.exit(1 if failed else 0)


main()
