#!/usr/bin/env python3
"""Writes docs/benchmarks/kernels.md: what the compiled kernels use, and the roofs of a training step.

    bench/gpu/kernel_table.py [BUILD_FOLDER] [OUT.md]

Registers, stack and shared memory come from the machine code of sm_90a in BUILD_FOLDER/cuda (build/release), as
cuobjdump prints them; c++filt names the kernels. cuobjdump and nvdisasm are parts of the toolkit, and PyPI has them
as nvidia-cuda-cuobjdump and nvidia-cuda-nvdisasm. No GPU is needed, and nothing here is a measurement.
"""
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# Limits of a multiprocessor of compute capability 9.0 (CUDA C++ Programming Guide, "Technical Specifications per
# Compute Capability"; registers are handed out to warps in units of 256).
MAX_THREADS, MAX_BLOCKS, REGISTERS, UNIT, SHARED, SHARED_OF_BLOCK = 2048, 32, 65536, 256, 228 * 1024, 1024

# Rates of an H200: a copy in memory, and bf16 products of random numbers. Both are assumptions for the roofs.
COPY = 4.08e12
PRODUCTS = 790e12


@dataclass
class Kernel:
    name: str       # demangled
    registers: int
    stack: int      # bytes of local memory per thread; spilled registers are among them
    shared: int     # bytes per block, with those of the system if there are any
    threads: int    # largest block
    code: list      # (address, instruction)

    def blocks(self):
        warps = -(-self.threads // 32)
        by_registers = REGISTERS // (-(-self.registers * 32 // UNIT) * UNIT * warps)
        by_shared = SHARED // max(self.shared, SHARED_OF_BLOCK)
        return min(by_registers, by_shared, MAX_THREADS // (warps * 32), MAX_BLOCKS)

    def occupancy(self):
        return self.blocks() * -(-self.threads // 32) * 32 / MAX_THREADS


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def read_object(path):
    """The kernels of an object file."""
    used = re.findall(r"Function (\S+):\s+REG:(\d+) STACK:(\d+) SHARED:(\d+)", output("cuobjdump", "-res-usage", path))
    threads, section = {}, None
    for line in output("cuobjdump", "-elf", path).splitlines():
        # A section is a line ".nv.info.KERNEL"; the table of sections has such names at the end of longer lines.
        if match := re.match(r"\.nv\.info\.(\S+)$", line):
            section = match[1]
            is_limit = False
        elif "EIATTR_MAX_THREADS" in line:
            is_limit = True
        elif section and "Value:" in line and is_limit:
            sizes = [int(v, 16) for v in re.findall(r"0x[0-9a-f]+", line)]
            threads[section] = sizes[0] * sizes[1] * sizes[2]
            is_limit = False
    code, name = defaultdict(list), None
    for line in output("cuobjdump", "-sass", path).splitlines():
        if match := re.search(r"Function : (\S+)", line):
            name = match[1]
        elif match := re.match(r"\s+/\*([0-9a-f]{4,})\*/\s+(.*?)\s*;", line):
            code[name].append((int(match[1], 16), match[2]))
    names = dict(zip((u[0] for u in used),
                     subprocess.run(["c++filt"], input="\n".join(u[0] for u in used), check=True,
                                    capture_output=True, text=True).stdout.splitlines()))
    return [Kernel(names[mangled], int(registers), int(stack), int(shared), threads.get(mangled, 1024), code[mangled])
            for mangled, registers, stack, shared in used]


def short_name(name):
    """ingot::cuda::norm::forward<...>(...) as norm::forward."""
    name = name.replace("(anonymous namespace)::", "")
    depth, plain = 0, ""
    for char in name:
        if char in "<(" and not plain.endswith("operator"):
            if char == "(" and depth == 0:
                break
            depth += 1
        elif char in ">)":
            depth -= 1
        elif depth == 0:
            plain += char
    return plain.split()[-1].replace("ingot::cuda::", "").replace("ingot::", "")


def common_path(code):
    """Number of instructions of a thread that takes no rare branch. A branch is rare if what it skips neither moves
    memory nor converts nor exchanges: in the casts, the code that counts saturated and underflowed values."""
    at = {address: i for i, (address, _) in enumerate(code)}
    steps, i = 0, 0
    while i < len(code):
        text = code[i][1]
        if text.startswith("NOP"):
            i += 1
            continue
        steps += 1
        jump = re.match(r"@\S+ BRA(?:\.\S+)?(?: !?U?P\d,?)? `?\(?\.?\S*?0x([0-9a-f]+)", text)
        end = at.get(int(jump[1], 16)) if jump else None
        if end and end > i and not any(
                re.search(r"\b(LDG|STG|LDS|STS|ATOM|RED|REDG|SHFL|BAR|F2FP|EXIT|BRA)\b", c) for _, c in code[i + 1:end]):
            i = end
        elif re.match(r"(EXIT|BRA)\b", text):
            break
        else:
            i += 1
    return steps


def held_loops(code, width):
    """Instructions per element in the loops of held_rows_loss, each of which passes over packs of `width` elements: the copy
    into shared memory, the largest logit, the sum of exponentials (without smoothing), and the gradient."""
    at = {address: i for i, (address, _) in enumerate(code)}
    loops = []
    for i, (address, text) in enumerate(code):
        jump = re.search(r"BRA(?:\.\S+)? (?:!?U?P\d, ?)?`?\(?\.?\S*?0x([0-9a-f]+)", text)
        begin = at.get(int(jump[1], 16)) if jump else None
        if begin is not None and begin < i:
            loops.append([c for _, c in code[begin:i + 1]])

    def count(body, name):
        return sum(re.search(rf"\b{name}\b", c) is not None for c in body)

    copies = [len(b) / count(b, "LDG") for b in loops if count(b, "LDG") > 0 and count(b, "STS") > 0]
    whole = [b for b in loops if count(b, "LDS") >= 1 and count(b, "LDG") == 0]
    largest = [len(b) for b in whole if count(b, "MUFU") == 0 and count(b, "FMNMX") + count(b, "FMNMX3") > 0]
    sums = [len(b) for b in whole if count(b, "MUFU") == width and count(b, "STG") == 0]
    gradients = [len(b) for b in whole if count(b, "MUFU") == width and count(b, "STG") > 0]
    return (min(copies) + min(largest) + min(sums) + min(gradients)) / width


def range_text(values):
    low, high = min(values), max(values)
    return str(low) if low == high else f"{low}–{high}"


def kernel_rows(kernels):
    groups = defaultdict(list)
    for kernel in kernels:
        groups[short_name(kernel.name)].append(kernel)
    for name, group in sorted(groups.items()):
        least = min(group, key=Kernel.occupancy)
        yield (f"| `{name}` | {len(group)} | {range_text([k.registers for k in group])} | "
               f"{max(k.stack for k in group)} | {range_text([max(0, k.shared - SHARED_OF_BLOCK) for k in group])} | "
               f"{range_text([k.threads for k in group])} | {range_text([k.blocks() for k in group])} | "
               f"{100 * least.occupancy():.0f} % |")


@dataclass
class Model:
    name: str
    batch: int
    T: int
    L: int
    C: int
    F: int
    heads: int
    V: int
    is_llama: bool
    product_fraction: float    # parts of PRODUCTS that the products of the blocks and of the head, and attention by
    head_fraction: float       # cuDNN, forward and backward together, reach; FRACTIONS says whose estimates they are
    attention_fraction: float
    loss_fraction: float       # part of COPY that cross-entropy reaches

    @property
    def N(self):
        return self.batch * self.T


MODELS = [Model("124M", 64, 1024, 12, 768, 3072, 12, 50304, False, 0.77, 0.83, 0.39, 0.90),
          Model("350M", 16, 2048, 24, 1024, 2816, 16, 32000, True, 0.80, 0.80, 0.39, 0.87),
          Model("1.3B", 8, 2048, 24, 2048, 5632, 16, 32000, True, 0.887, 0.86, 0.56, 0.87)]
MEMORY_FRACTION = 0.85  # the goal for kernels bound by memory
LIKE_A_COPY = 0.95       # what they reach if they do as well as a copy, but for their first and last blocks

# Parts of COPY, by the review of the kernels of 2026-11-23, which gave a roof and a time for each operation.
NORMS, ROPE, SWIGLU, EMBEDDING, ADAMW = 1.0, 1.0, 0.95, 0.4, 0.93
FRACTIONS = [
    ("products of the blocks", "roof 42.3 of 55 ms at 124M, 153 of 173 ms at 1.3B; 350M lies between"),
    ("attention", "roof 5.5 of 14 ms at 124M, 14.6 of 26 ms at 1.3B; heads of 64 at 350M as at 124M"),
    ("products of the head", "roof 19.2 of the 26 ms at 124M less the 3 that larger chunks save; 8.2 of 9.5 ms at 1.3B"),
    ("cross-entropy", "roof 8.1 of 9 ms at 124M, 1.3 of 1.5 ms at 1.3B"),
    ("norms", "roof 5.0 of the 8.9 ms at 124M less the 4 that its cures save, so all of it"),
    ("rope", "roof 3.2 of the 4.5 ms at 1.3B less the 1.3 that its cure saves, so all of it"),
    ("swiglu", "roof 8.7 of 9.2 ms at 1.3B"),
    ("embedding", "roof 0.2 of the 0.5 ms that are left at 124M once hot tokens are split"),
    ("AdamW and norm of the gradient", "roof 12.7 of 13.7 ms at 1.3B; one launch updates many parameters at 124M, too")]


@dataclass
class Entry:
    name: str
    source: str
    calls: int
    bytes: float = 0  # the sum over all calls
    flops: float = 0
    fraction: float = 1.0

    def roof_s(self):
        return max(self.bytes / COPY, self.flops / PRODUCTS)


def params_of(m):
    matrix = 4 * m.C * m.C + (3 if m.is_llama else 2) * m.F * m.C
    return m.L * matrix + m.V * m.C * (2 if m.is_llama else 1)


def entries(m):
    """The operations of a step in bf16. The bytes are those of the tensors that an operation reads and writes."""
    N, C, F, L = m.N, m.C, m.F, m.L
    up = 2 * F if m.is_llama else F
    matrix = 4 * C * C + up * C + F * C
    params = params_of(m)
    norms = 2 * L + 1
    yield Entry("products of the blocks", "2 FLOP per weight and token, 3 products", 12 * L,
                flops=6 * N * L * matrix, fraction=m.product_fraction)
    yield Entry("attention", "cuDNN, causal: 3.5 times forward's 2·N·T·C", 2 * L, flops=3.5 * 2 * N * m.T * C * L,
                fraction=m.attention_fraction)
    yield Entry("products of the head", "3 products of N·C·V", 3, flops=6 * N * C * m.V, fraction=m.head_fraction)
    yield Entry("cross-entropy", "reads bf16 logits once and writes their gradient over them: 4 B; the product writes the logits",
                1, bytes=4 * N * m.V, fraction=m.loss_fraction)
    yield Entry("norms, forward", "reads the sum that the product before it has written, writes y: 4 B", norms,
                bytes=4 * N * C * norms, fraction=NORMS)
    yield Entry("norms, backward", "reads dy, x, d_residual (but for the last norm), writes dx: 8 B", norms,
                bytes=8 * N * C * norms - 2 * N * C, fraction=NORMS)
    if m.is_llama:
        yield Entry("rope", "reads and writes q and k, forward and backward: 8 B", 2 * L, bytes=8 * N * 2 * C * L,
                    fraction=ROPE)
        yield Entry("swiglu, forward", "reads 2 F, writes F: 6 B", L, bytes=6 * N * F * L, fraction=SWIGLU)
        yield Entry("swiglu, backward", "reads 3 F, writes 2 F: 10 B", L, bytes=10 * N * F * L, fraction=SWIGLU)
    yield Entry("embedding", "forward writes 2 B and reads 2; backward reads 2 B and adds f32 rows", 2,
                bytes=6 * N * C + 8 * min(N, m.V) * C, fraction=EMBEDDING)
    yield Entry("AdamW and norm of the gradient", "30 B and 4 B per parameter, and 4 B to zero an untied table's gradient", 2,
                bytes=34 * params + (4 * m.V * C if m.is_llama else 0), fraction=ADAMW)


def other_choices(m):
    """What other settings add to the step: (the setting, bytes)."""
    N, C, F, L = m.N, m.C, m.F, m.L
    activation = 6 if m.is_llama else 4  # reads 2 F or F and writes F; forward's GELU is fused
    yield "`head.loss_dtype = \"f32\"`", 2 * N * m.V  # the loss reads 4 B and writes 2 B
    yield "`activations.policy = \"selective\"`", 4 * N * C * 2 * L + activation * N * F * L
    yield "`precision.master = \"bf16_tail\"`", -2 * params_of(m)  # the compute weights are a part of the masters


def step_rows(m):
    roof = predicted = 0.0
    for e in entries(m):
        roof += e.roof_s()
        predicted += e.roof_s() / e.fraction
        work = f"{e.flops / 1e12:.1f} TFLOP" if e.flops else f"{e.bytes / 1e9:.2f} GB"
        yield (f"| {e.name} | {e.source} | {e.calls} | {work} | {e.roof_s() / e.calls * 1e6:.0f} | "
               f"{e.roof_s() * 1e3:.1f} | {e.fraction:.2f} | {e.roof_s() / e.fraction * 1e3:.1f} |")
    yield f"| sum | | | | | {roof * 1e3:.1f} | | {predicted * 1e3:.1f} |"
    for fraction in (MEMORY_FRACTION, LIKE_A_COPY):
        of_memory = sum(e.roof_s() / (fraction if e.bytes else e.fraction) for e in entries(m))
        yield f"| sum with {fraction:.2f} for kernels bound by memory | | | | | | | {of_memory * 1e3:.1f} |"
    for name, size in other_choices(m):
        added = size / COPY / MEMORY_FRACTION
        change = f"{abs(size) / 1e9:.2f} GB {'more' if size > 0 else 'less'}"
        yield f"| sum with {name} | | | {change} | | | | {(predicted + added) * 1e3:.1f} |"


def cast_rows(m):
    """FP8 linears: the bytes and the time of their casts, and the step with them."""
    N, C, F, L = m.N, m.C, m.F, m.L
    up = 2 * F if m.is_llama else F
    x, dy, w = N * (3 * C + F) * L, N * (3 * C + C + up + C) * L, (4 * C * C + up * C + F * C) * L
    # Current scaling reads weights, attention's output and, without a bias whose gradient is summed, the gradient of v
    # once more for their amaxes.
    more = 2 * (w + N * C * L * (2 if m.is_llama else 1))
    step = sum(e.roof_s() / e.fraction for e in entries(m))
    products = next(e for e in entries(m) if e.name == "products of the blocks")
    fused_s = unfused_bytes(m) / COPY / MEMORY_FRACTION
    for recipe, size in (("delayed", 4 * (x + w + dy)), ("tensorwise", 4 * (x + w + dy) + more)):
        casts_s = size / COPY / MEMORY_FRACTION
        total = step - products.roof_s() / products.fraction / 2 + casts_s + fused_s
        yield (f"| {m.name} | {recipe} | {size / (x + w + dy):.2f} | {size / 1e9:.1f} GB | {size / COPY * 1e3:.1f} | "
               f"{total * 1e3:.1f} |")


def unfused_bytes(m):
    """What GELU, its derivative and the sums of biases' gradients move by kernels of their own, which FP8 products do not
    fuse. GELU's derivative sums one of them."""
    return 0 if m.is_llama else ((4 + 6) * m.F + 2 * 5 * m.C) * m.N * m.L


def document(kernels):
    yield "# Kernels: what they use, and their roofs"
    yield ""
    yield ("`bench/gpu/kernel_table.py` wrote this page from the compiled code of sm_90a and from counted bytes. **No GPU has run "
           "any of it**: a roof is arithmetic, and so is a prediction.")
    yield ""
    yield "## Registers, shared memory, occupancy"
    yield ""
    yield ("One row per kernel with the range over its compiled forms (dtypes, widths, row lengths). Stack is local memory per "
           "thread in bytes, where spilled registers lie. Blocks is the number that a multiprocessor holds at once, by the limits "
           "of compute capability 9.0 for the largest block of the kernel (the code states none: 1024 threads); occupancy is "
           "that of the form with the least.")
    yield ""
    yield "| kernel | forms | registers | stack | shared bytes | threads | blocks | occupancy |"
    yield "|---|---|---|---|---|---|---|---|"
    yield from kernel_rows(kernels)
    yield ""
    yield "## The FP8 cast into both layouts"
    yield ""
    yield ("Instructions of a thread that meets no value to count, for its 32 elements, and per 16 elements. They include the "
           "transposition and the statistics of the block. A multiprocessor issues 4 warps of 32 per cycle, so 132 of them at "
           "1.7 GHz issue 28.7e12 per second; the bound is the time of the instructions over the time of the bytes, of which "
           "a value below 1 says that memory is the limit.")
    yield ""
    yield "| form | instructions | per 16 elements | bytes per element | instructions' time / bytes' time |"
    yield "|---|---|---|---|---|"
    for k in sorted(kernels, key=lambda k: k.name):
        if short_name(k.name) != "encode_both" or "bf16" not in k.name:
            continue
        steps = common_path(k.code)
        arguments = k.name.split("encode_both<")[1]
        is_both, format = arguments.startswith("true"), "e4m3" if "E4m3" in arguments else "e5m2"
        size = 4 if is_both else 3
        ratio = (steps / 32 / (132 * 4 * 32 * 1.7e9)) / (size / COPY)
        yield (f"| bf16 to {format}, {'both layouts' if is_both else 'transposed'} | {steps} | {steps / 2:.0f} | {size} | "
               f"{ratio:.2f} |")
    yield ""
    yield "## The loss over a held row"
    yield ""
    yield ("Instructions per logit of the loops of `held_rows_loss` without a cap, which holds its row in shared memory; the last "
           "column is as above. Its row is dynamic shared memory, which the first table does not have: 98 KiB for GPT-2's vocabulary "
           "in bf16, so that two blocks share a multiprocessor, and 196 KiB in f32.")
    yield ""
    yield "| form | instructions per logit | bytes per logit | instructions' time / bytes' time |"
    yield "|---|---|---|---|"
    for k in sorted(kernels, key=lambda k: k.name):
        types = re.search(r"held_rows_loss<(\d+), ([\w:]+), ([\w:]+), ingot::NoCap", k.name)
        names = [{"float": "f32"}.get(t, t.replace("ingot::", "")) for t in types.groups()[1:]] if types else []
        if not types or "f16" in names:  # f16 is as bf16
            continue
        size = sum(4 if n == "f32" else 2 for n in names)
        steps = held_loops(k.code, int(types[1]))
        yield (f"| {names[0]} logits, {names[1]} gradient | {steps:.0f} | {size} | "
               f"{(steps / (132 * 4 * 32 * 1.7e9)) / (size / COPY):.2f} |")
    yield ""
    yield "## A step in bf16"
    yield ""
    yield (f"Assumed rates of an H200: {COPY / 1e12:.2f} TB/s for a copy, {PRODUCTS / 1e12:.0f} TFLOP/s for bf16 products of random "
           "numbers. The fraction is the part of the rate that the prediction assumes. It comes from a review of the kernels "
           "(2026-11-23), which estimated a time beside the roof of each operation; the table below says which. The goal for kernels bound by "
           "memory is 0.85, and a sum for that is given, too. Launches and gaps are not in the sums.")
    yield ""
    yield "| operation | where the fraction comes from |"
    yield "|---|---|"
    for name, reason in FRACTIONS:
        yield f"| {name} | {reason} |"
    for m in MODELS:
        yield ""
        yield f"### {m.name}: {m.batch} x {m.T} tokens"
        yield ""
        yield "| operation | bytes or FLOP counted | calls | work | roof of a call in µs | roof in ms | fraction | predicted ms |"
        yield "|---|---|---|---|---|---|---|---|"
        yield from step_rows(m)
    yield ""
    yield "## Casts of FP8 linears in a step"
    yield ""
    yield ("Bytes per element of x, w and dy, by those that `Fp8Traffic` and `DryStepOnADevice` count in the simulation, over all "
           "linears of the blocks, in a step of one micro-batch. Further micro-batches cast x and dy only. Backward reads the "
           "codes of x that forward left, so nothing is recomputed with `activations.policy = \"selective\"` either. A norm or an "
           "activation that writes a tensor finds its amax, too, and so do a rotation and the sums for a bias's gradient; with current "
           "scaling the weights, attention's output and, in a LLaMA, the gradient of v are read once more. The predicted step is that of "
           "the tables above with the products of the blocks in half their time, the casts, and, for a GPT-2, the kernels that "
           "FP8 products do not fuse: GELU, its derivative and the sums for biases' gradients.")
    yield ""
    yield "| model | recipe | bytes per element | bytes | roof of the casts in ms | predicted step in ms |"
    yield "|---|---|---|---|---|---|"
    for m in MODELS:
        yield from cast_rows(m)


def main():
    build = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build/release"
    out = Path(sys.argv[2]) if len(sys.argv) > 2 else ROOT / "docs/benchmarks/kernels.md"
    for tool in ("cuobjdump", "nvdisasm", "c++filt"):
        if not shutil.which(tool):
            sys.exit(f"kernel_table.py: {tool} was not found in PATH; see the first lines of this file")
    objects = sorted(build.glob("cuda/*/*.o"))
    if not objects:
        sys.exit(f"kernel_table.py: {build}/cuda has no objects; build with INGOT_CUDA=ON first")
    kernels = [kernel for path in objects for kernel in read_object(str(path))]
    out.write_text("\n".join(document(kernels)) + "\n")
    print(f"{out}: {len(kernels)} kernels of {len(objects)} objects")


if __name__ == "__main__":
    main()
