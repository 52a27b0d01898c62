"""Claims that arithmetic decides. Each function of a claim returns its parts: what was computed, and the part's verdict.

A function gives every published number and every computed one, so that its text is the working. Nothing is trained or
timed here. The functions' names stand in claims.toml.
"""

import math
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))
from stats import HOLDS, REFUTED  # noqa: E402

GB = 1e9


def is_said(text, figure, published, within=0.02):
    """The part holds if the figure is the published one up to a fraction `within`, which allows for rounding."""
    same = abs(figure - published) <= within * abs(published)
    return f"{text} = {figure:.4g}, published {published:.4g}", HOLDS if same else REFUTED


def is_true(text, holds):
    return text, HOLDS if holds else REFUTED


def sigmoid_cap(x):
    return 30 / (1 + math.exp(-x / 7.5))


def tanh_cap(x):
    return 15 * math.tanh(x / 15)


def slope(f, x, h=1e-4):
    return (f(x + h) - f(x - h)) / (2 * h)


GRID = [i / 10 for i in range(-600, 601)]


def a100_has_fp8():
    device = tomllib.loads((ROOT / "configs/hardware/a100-80g.toml").read_text())["device"]
    return [is_true("FP8 products begin with compute capability 8.9, the A100 has 8.0: fp8_flops = "
                    f"{device['fp8_flops']} (configs/hardware/a100-80g.toml)", device["fp8_flops"] > 0)]


def speedup_of_the_table():
    return [is_said("142 ms / 127 ms", 142 / 127, 1.4)]


def e5m2(x):
    """Rounds to the nearest finite value of e5m2, ties to even, clamped to the largest."""
    if x == 0:
        return 0.0
    spacing = 2.0 ** (max(math.floor(math.log2(abs(x))), -14) - 2)
    return math.copysign(min(round(abs(x) / spacing) * spacing, 57344.0), x)


def gradient_scale():
    def kept(tokens):
        gradient = (1 - 1 / 50304) / tokens * 2.0**29  # of the target's logit, at the first step of a zero head
        return e5m2(gradient) / gradient
    return [is_true(f"{tokens:,} tokens: {100 * kept(tokens):.0f} % of a target's gradient is left, {100 - 12.5:.0f} % or more "
                    "is e5m2's rounding", abs(kept(tokens) - 1) <= 1 / 8) for tokens in (65536, 8192, 2048)]


def printed_backward():
    gradient, w = 1e-6, 0.25
    printed = (gradient * 2.0**29) * (w * 32) / 32
    return [is_said("printed gradient of x, over the right one: (g 2^29)(32 w) / 32 / (g w)", printed / (gradient * w), 1.0)]


def cap_identity():
    right = max(abs(sigmoid_cap(x) - (tanh_cap(x) + 15)) for x in GRID)
    written = max(abs(sigmoid_cap(x) - (math.tanh(x / 15) + 15)) for x in GRID)
    return [is_true(f"30 sigmoid(x/7.5) is 15 tanh(x/15) + 15 within {right:.0e}", right < 1e-12),
            is_true(f"it is tanh(x/15) + 15, as written, within {written:.1f}", written < 1e-12)]


def cap_ranges():
    return [is_true(f"tanh form: {tanh_cap(-1e3):.0f} to {tanh_cap(1e3):.0f}; sigmoid form: {sigmoid_cap(-1e3):.0f} to "
                    f"{sigmoid_cap(1e3):.0f}", [round(f(x)) for f in (tanh_cap, sigmoid_cap) for x in (-1e3, 1e3)] == [-15, 15, 0, 30])]


def cap_slopes():
    return [is_said("largest slope, tanh form", max(slope(tanh_cap, x) for x in GRID), 1.0),
            is_said("largest slope, sigmoid form", max(slope(sigmoid_cap, x) for x in GRID), 2.0)]


def cap_saturation():
    low, high = slope(sigmoid_cap, -60), slope(sigmoid_cap, 60)
    return [is_true(f"the sigmoid form saturates above only: its slope is {high:.4f} at 60 and {low:.4f} at -60", low > 2 * high)]


def three_schedules():
    cooldown = 0.4

    def of_1_3(t):
        return 1.0 + (0.1 - 1.0) * min((1 - t) / cooldown, 1)

    def of_2_3(t):
        return (1 - t) / cooldown * 1.0 + (1 - (1 - t) / cooldown) * 0.1

    def of_the_phases(t):
        return 1.0 if t < 0.3 else 1.0 - 0.9 * (t - 0.3) / 0.4 if t < 0.7 else 0.1
    listings = {"listing of 1.3": of_1_3, "listing of 2.3": of_2_3, "phases of 2.3": of_the_phases}
    return [is_true(f"{name}: multiplier {f(0):.2f} at the start, {f(0.5):.2f} half-way, {f(1):.2f} at the end; it falls from 1 to 0.1",
                    abs(f(0) - 1) < 1e-9 and abs(f(1) - 0.1) < 1e-9) for name, f in listings.items()]


def f32_state_70b():
    return [is_said("70 G x 4 bytes, in GB", 70e9 * 4 / GB, 280)]


def adamw_state_70b():
    return [is_said("70 G x 2 x 4 bytes, in GB", 70e9 * 8 / GB, 560)]


def formats():
    rows = {"FP32": (32, 8, 23), "TF32": (19, 8, 10), "BF16": (16, 8, 7), "FP16": (16, 5, 10), "E4M3": (8, 4, 3), "E5M2": (8, 5, 2)}
    return [is_said(f"{name}: 1 + {exponent} + {mantissa} bits", 1 + exponent + mantissa, bits, 0)
            for name, (bits, exponent, mantissa) in rows.items()]


def half_precision():
    return [is_said("FP16: (2 - 2^-10) 2^15", (2 - 2.0**-10) * 2**15, 65504, 0),
            is_said("FP16: decimal digits, log10 2^11", math.log10(2**11), 3, 0.2),
            is_said("BF16: decimal digits, log10 2^8", math.log10(2**8), 2, 0.25)]


def bytes_per_parameter():
    return [is_said("f32: 4 + 4 + 8 bytes", 4 + 4 + 8, 16, 0), is_said("mixed: 2 + 4 + 2 + 8 bytes", 2 + 4 + 2 + 8, 16, 0)]


def recomputing_every_layer():
    # A step is a forward of work 1 and a backward of work 2; recomputation adds at most one forward.
    return [is_said("work of a step with every layer computed again, (1 + 1 + 2) / (1 + 2)", 4 / 3, 2.0, 0.1),
            is_true(f"the overhead is 30 to 40 %: {100 / 3:.0f} %", 0.3 <= 1 / 3 <= 0.4)]


def recomputing_segments():
    layers = 80
    segments = round(math.sqrt(layers))
    return [is_true(f"inputs held of {layers} layers: {segments} of segments and {math.ceil(layers / segments)} of the open one; "
                    "O(sqrt L)", segments + math.ceil(layers / segments) <= 2.1 * math.sqrt(layers)),
            is_said(f"overhead: each layer but those of the last segment runs once more, ({layers} - "
                    f"{math.ceil(layers / segments)}) / (3 x {layers})", (layers - math.ceil(layers / segments)) / (3 * layers), 0.5, 0.1)]


def forward_overheads():
    layers = 80
    segment = math.ceil(layers / math.sqrt(layers))
    return [is_said("forward work, every layer again", 2.0, 2.0),
            is_said(f"forward work, every sqrt(L) of {layers} layers: 1 + ({layers} - {segment}) / {layers}",
                    1 + (layers - segment) / layers, 1.5, 0.1)]


def ddp_70b():
    return [is_said("70 G x 16 bytes, in TB", 70e9 * 16 / 1e12, 1.1, 0.05)]


def ddp_and_fsdp_table():
    rows = (("parameters", 2, 140, 17.5), ("gradients", 2, 140, 17.5), ("states", 8, 560, 70), ("masters", 4, 280, 35),
            ("total", 16, 1120, 140))
    return [is_said(f"{name}, {kind}: 70 G x {size} bytes / {ranks}, in GB", 70 * size / ranks, published)
            for name, size, *both in rows for kind, ranks, published in zip(("DDP", "FSDP"), (1, 8), both)]


def seventy_on_eight():
    return [is_true(f"70 G x 16 bytes / 8 = {70 * 16 / 8:.0f} GB fit into 80 GB", 70 * 16 / 8 <= 80)]


def one_seventy_five():
    need = 175 * 16 / (8 * 4)
    return [is_said("8 x 4 x 32 GPUs", 8 * 4 * 32, 1024, 0),
            is_true(f"175 G x 16 bytes / (TP 8 x PP 4) = {need:.1f} GB, without activations, fit into 80 GB", need <= 80)]


def logits_of_16_sequences():
    return [is_said("16 x 2048 x 131072 x 2 bytes, in GB", 16 * 2048 * 131072 * 2 / GB, 8, 0.1)]


def cut_cross_entropy_table():
    return [is_said("memory, 1 - 58.70 / 73.77", 1 - 58.70 / 73.77, 0.23),
            is_said("time of a step, 3.002 / 2.371 - 1", 3.002 / 2.371 - 1, 0.41)]


def llama3_rates():
    return [is_said(f"3e-4 x 4096 / {width}", 3e-4 * 4096 / width, rate, 0.1)
            for width, rate in ((4096, 3e-4), (8192, 1.5e-4), (16384, 8e-5))]


def f16_messages():
    return [is_said("2 bytes / 4 bytes", 2 / 4, 0.5, 0)]
