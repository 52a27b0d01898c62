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

# Assumptions for the roofs. A copy in memory counts bytes read and written; PyTorch's moves about 3.0 TB/s on an H100 (SXM, data
# sheet: 3.35) and 4.1 to 4.3 on an H200 (4.8). bf16 products of 8192 x 8192 x 8192 random numbers, in a short run, reach 770 to
# 798 TFLOP/s on both.
COPY = {"H100": 3.0e12, "H200": 4.08e12}  # bytes per second
PRODUCTS = 790e12  # FLOP per second
ISSUE = 132 * 4 * 32 * 1.7e9  # instructions of threads per second


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
    kv: int  # width of keys, and of values
    V: int
    is_llama: bool
    is_tied: bool
    products: tuple   # parts of PRODUCTS that the products of the blocks and of the head, and attention by
    head: tuple       # cuDNN, forward and backward together, reach: at worst and at best
    attention: tuple

    @property
    def N(self):
        return self.batch * self.T

    def matrix(self):
        """Weights of a block's matrices."""
        return self.C * (2 * self.C + 2 * self.kv) + (3 if self.is_llama else 2) * self.F * self.C

    def params(self):
        return self.L * self.matrix() + self.V * self.C * (1 if self.is_tied else 2)


WIDE_PRODUCTS, SMALL_HEADS = (0.785, 0.873), (0.35, 0.39)
MODELS = [Model("124M", 64, 1024, 12, 768, 3072, 768, 50304, False, True, (0.72, 0.77), (0.79, 0.83), SMALL_HEADS),
          Model("1.3B", 8, 2048, 24, 2048, 5632, 2048, 32000, True, False, WIDE_PRODUCTS, (0.785, 0.86), (0.50, 0.56)),
          Model("1B", 8, 2048, 16, 2048, 8192, 512, 131072, True, True, WIDE_PRODUCTS, (0.785, 0.86), SMALL_HEADS)]
HELD_COLUMNS = 115000  # of bf16 logits fit in the shared memory of a block (docs/devices.md)

# Parts of a copy's rate, at worst and at best; FRACTIONS says why.
NORMS, ROPE, SWIGLU, EMBEDDING, ADAMW, LOSS = (0.72, 0.95), (0.80, 0.95), (0.85, 0.95), (0.3, 0.4), (0.85, 0.93), (0.72, 0.90)
GAP_S, SMALL_KERNEL_S = (4e-6, 2e-6), (10e-6, 5e-6)
FP8_GAIN = (1150 / 620, 1250 / 690)  # of products, over bf16's
FRACTIONS = [
    ("products of the blocks", "a card of 700 W trains with 620 to 690 TFLOP/s in products 2048 wide; of 768, 0.77 is an estimate of "
     "the best kernel of eight, 0.72 one of a middling kernel"),
    ("attention", "heads of 128: 26 ms at 1.3B is an estimate, 29 ms follows from NVIDIA's figures for cuDNN; heads of 64: 14 ms at 124M is "
     "an estimate, and a tenth more"),
    ("products of the head", "estimates of 23 ms at 124M and 9.5 ms at 1.3B; at worst a twentieth more"),
    ("cross-entropy", "at best what instructions allow (0.83 of the issue limit), at worst its four passes over the held row do "
     "not overlap: 4.5 ms at 124M on an H200"),
    ("norms", "at best 0.95, because no kernel does as well as a copy; norm::backward has an occupancy of 12 to 25 % and does not "
     "load ahead"),
    ("rope, SwiGLU", "at best 0.95"),
    ("embedding", "tokens that are frequent are added by few warps"),
    ("AdamW and norm of the gradient", "an estimate of 0.93, and the goal for kernels bound by memory"),
    ("epilogues", "the bytes that products read or write besides their operands: at worst none hides behind tensor cores, at best "
     "half"),
    ("sums of biases' gradients", "at best products compute them (BGRADB), at worst kernels of their own read dy once more"),
    ("launches", "2 to 4 µs between kernels, and 5 to 10 µs for each of a GPT-2's casts and sums of a bias; a graph saves a part"),
    ("FP8 products", "1,150 to 1,250 TFLOP/s 2048 wide, and as many times bf16's rate at other widths")]


@dataclass
class Entry:
    name: str
    source: str
    calls: int
    bytes: float = 0  # the sum over all calls
    flops: float = 0
    fraction: tuple = (1.0, 1.0)
    seconds: tuple = (0.0, 0.0)  # neither: at worst and at best

    def roof_s(self, card):
        return max(self.bytes / COPY[card], self.flops / PRODUCTS)

    def predicted_s(self, card):
        """At best, at worst."""
        roof = self.roof_s(card)
        return [seconds + (roof / part if part else 0) for seconds, part in zip(self.seconds[::-1], self.fraction[::-1])]


def entries(m, fuses=True):
    """The operations of a step in bf16, or with products that do not fuse GELU and sums of biases' gradients. The bytes are those of the tensors that an operation reads and writes."""
    N, C, F, L = m.N, m.C, m.F, m.L
    norms = 2 * L + 1
    loss_bytes = 4 if m.V <= HELD_COLUMNS else 6
    found = [
        Entry("products of the blocks", "2 FLOP per weight and token, 3 products", 12 * L, flops=6 * N * L * m.matrix(),
              fraction=m.products),
        Entry("attention", "cuDNN, causal: 3.5 times forward's 2·N·T·C", 2 * L, flops=3.5 * 2 * N * m.T * C * L,
              fraction=m.attention),
        Entry("products of the head", "3 products of N·C·V", 3, flops=6 * N * C * m.V, fraction=m.head),
        Entry("cross-entropy", f"reads bf16 logits {'once' if loss_bytes == 4 else 'twice'} and writes their gradient over them: "
              f"{loss_bytes} B; the product writes the logits", 1, bytes=loss_bytes * N * m.V, fraction=LOSS),
        Entry("norms, forward", "reads the sum that the product before it has written, writes y: 4 B", norms,
              bytes=4 * N * C * norms, fraction=NORMS),
        Entry("norms, backward", "reads dy, x, d_residual (but for the last norm), writes dx: 8 B", norms,
              bytes=8 * N * C * norms - 2 * N * C, fraction=NORMS)]
    if m.is_llama:
        found += [
            Entry("rope", "reads and writes q and k, forward and backward: 8 B", 2 * L, bytes=8 * N * (C + m.kv) * L, fraction=ROPE),
            Entry("swiglu, forward", "reads 2 F, writes F: 6 B", L, bytes=6 * N * F * L, fraction=SWIGLU),
            Entry("swiglu, backward", "reads 3 F, writes 2 F: 10 B", L, bytes=10 * N * F * L, fraction=SWIGLU)]
    # Half of an epilogue's bytes hide at best, so its time is the roof or half of it.
    has_fused = fuses and not m.is_llama
    gelu = 4 * F if has_fused else 0
    found += [
        Entry("embedding", "forward writes 2 B and reads 2; backward reads 2 B and adds f32 rows", 2,
              bytes=6 * N * C + 8 * min(N, m.V) * C, fraction=EMBEDDING),
        Entry("AdamW and norm of the gradient", "30 B and 4 B per parameter, and 4 B to zero an untied table's gradient", 2,
              bytes=34 * m.params() + (0 if m.is_tied else 4 * m.V * C), fraction=ADAMW),
        Entry("epilogues", "the residual stream, 2 reads of 2 B" + ("; GELU's input, written and read: 4 B per F" if has_fused else ""),
              0, bytes=(4 * C + gelu) * N * L, fraction=(1.0, 2.0))]
    calls, small = sum(e.calls for e in found), 0 if m.is_llama else 8 * L
    if has_fused:
        found.append(Entry("sums of biases' gradients", "dy once more: 2 B", 4 * L, bytes=2 * (3 * C + C + F + C) * N * L,
                           fraction=(1.0, 0.0)))
    found.append(Entry("launches", f"{calls} kernels" + (f" and {small} casts and sums of biases" if small else ""), calls + small,
                       seconds=tuple(calls * gap + small * kernel for gap, kernel in zip(GAP_S, SMALL_KERNEL_S))))
    return found


def step_s(m, card, fuses=True):
    """The predicted step, at best and at worst."""
    return [sum(times) for times in zip(*(e.predicted_s(card) for e in entries(m, fuses)))]


def ms(range_s):
    low, high = (f"{1e3 * s:.1f}" for s in range_s)
    return low if low == high else f"{low}–{high}"


def other_choices(m):
    """What other settings add to the step: (the setting, bytes)."""
    N, C, F, L = m.N, m.C, m.F, m.L
    activation = 6 if m.is_llama else 4  # reads 2 F or F and writes F; forward's GELU is fused
    yield "`head.loss_dtype = \"f32\"`", 2 * N * m.V  # the loss reads 4 B and writes 2 B
    yield "`activations.policy = \"selective\"`", 4 * N * C * 2 * L + activation * N * F * L
    yield "`precision.master = \"bf16_tail\"`", -2 * m.params()  # the compute weights are a part of the masters


def step_rows(m):
    for e in entries(m):
        work = f"{e.flops / 1e12:.1f} TFLOP" if e.flops else f"{e.bytes / 1e9:.2f} GB" if e.bytes else ""
        fraction = "–".join(f"{part:.2f}" for part in dict.fromkeys(e.fraction)) if e.flops or e.bytes and e.calls and all(e.fraction) else ""
        roofs = [ms([e.roof_s(card)] * 2) if work else "" for card in COPY]
        yield (f"| {e.name} | {e.source} | {e.calls or ''} | {work} | {' | '.join(roofs)} | {fraction} | "
               f"{' | '.join(ms(e.predicted_s(card)) for card in COPY)} |")
    yield f"| **sum** | | | | | | | {' | '.join(f'**{ms(step_s(m, card))}**' for card in COPY)} |"
    for name, size in other_choices(m):
        change = f"{abs(size) / 1e9:.2f} GB {'more' if size > 0 else 'less'}"
        sums = [ms(s + size / COPY[card] / part for s, part in zip(step_s(m, card), SWIGLU[::-1])) for card in COPY]
        yield f"| sum with {name} | | | {change} | | | | {' | '.join(sums)} |"


def cast_rows(m):
    """FP8 linears: the bytes and the time of their casts, and the step with them."""
    N, C, F, L = m.N, m.C, m.F, m.L
    up = 2 * F if m.is_llama else F
    x, dy, w = N * (3 * C + F) * L, N * (C + 2 * m.kv + C + up + C) * L, m.matrix() * L
    # Current scaling reads weights, attention's output and, without a bias whose gradient is summed, the gradient of v
    # once more for their amaxes.
    more = 2 * (w + N * (C + (m.kv if m.is_llama else 0)) * L)
    products = next(e for e in entries(m) if e.name == "products of the blocks")
    for recipe, size in (("delayed", 4 * (x + w + dy)), ("tensorwise", 4 * (x + w + dy) + more)):
        steps = []
        for card in COPY:
            unfused = (size + unfused_bytes(m)) / COPY[card]
            steps.append(ms(step - product * (1 - 1 / gain) + unfused / part for step, product, gain, part in zip(
                step_s(m, card, fuses=False), products.predicted_s(card), FP8_GAIN[::-1], SWIGLU[::-1])))
        roofs = " | ".join(f"{size / COPY[card] * 1e3:.1f}" for card in COPY)
        yield f"| {m.name} | {recipe} | {size / (x + w + dy):.2f} | {size / 1e9:.1f} GB | {roofs} | {' | '.join(steps)} |"


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
           "a value below 1 says that memory is the limit on an H200, the faster memory.")
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
        ratio = (steps / 32 / ISSUE) / (size / COPY["H200"])
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
               f"{steps / ISSUE / (size / COPY['H200']):.2f} |")
    yield ""
    yield "## A step in bf16"
    yield ""
    yield ("Assumed rates: a copy of 3.0 TB/s on an H100 and 4.08 on an H200, bytes read and written counted (their data sheets say 3.35 "
           f"and 4.8), and {PRODUCTS / 1e12:.0f} TFLOP/s for bf16 products of random numbers in a short run on both. PyTorch reached "
           "3.0, 4.1 to 4.3 and 770 to 798 on such cards; Ingot has not run on either. The fraction is the part of the rate that is "
           "assumed, at worst and at best. **A prediction is a range**: its ends take all operations at their best and all at "
           "their worst.")
    yield ""
    yield "| operation | where the range comes from |"
    yield "|---|---|"
    for name, reason in FRACTIONS:
        yield f"| {name} | {reason} |"
    for m in MODELS:
        yield ""
        yield f"### {m.name}: {m.batch} x {m.T} tokens"
        yield ""
        yield "| operation | bytes or FLOP counted | calls | work | roof in ms, H100 | H200 | fraction | predicted ms, H100 | H200 |"
        yield "|---|---|---|---|---|---|---|---|---|"
        yield from step_rows(m)
    yield ""
    yield "## Casts of FP8 linears in a step"
    yield ""
    yield ("Bytes per element of x, w and dy, by those that `Fp8Traffic` and `DryStepOnADevice` count in the simulation, over all "
           "linears of the blocks, in a step of one micro-batch. Further micro-batches cast x and dy only. Backward reads the "
           "codes of x that forward left, so nothing is recomputed with `activations.policy = \"selective\"` either. A norm or an "
           "activation that writes a tensor finds its amax, too, and so do a rotation and the sums for a bias's gradient; with current "
           "scaling the weights, attention's output and, in a LLaMA, the gradient of v are read once more. The predicted step is that of "
           "the tables above with faster products of the blocks, the casts, and, for a GPT-2, the kernels that "
           "FP8 products do not fuse: GELU, its derivative and the sums for biases' gradients.")
    yield ""
    yield "| model | recipe | bytes per element | bytes | roof of the casts in ms, H100 | H200 | predicted step in ms, H100 | H200 |"
    yield "|---|---|---|---|---|---|---|---|"
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
