#!/usr/bin/env python3
"""Computes for how many tokens the gradient scale 2^29 of the FP8 head is right.

With the mean over N tokens no gradient of a logit is larger than 1/N, and at the first step of a zero head the target's
gradient comes close: (1 - 1/V)/N. The largest value of e5m2 is 57344 and its smallest is 2^-16. The script implements
the cast itself, in Python floats, so that the result does not depend on Ingot. It trains nothing and measures no time.
"""

import math

import runs

args = runs.arguments(__doc__)
LARGEST, SMALLEST = 57344.0, 2.0**-16


def e5m2(x):
    """Rounds x to the nearest finite value of e5m2 (ties to even), clamped to the largest."""
    magnitude = abs(x)
    if magnitude == 0:
        return 0.0
    exponent = max(math.floor(math.log2(magnitude)), -14)
    spacing = 2.0 ** (exponent - 2)
    return math.copysign(min(round(magnitude / spacing) * spacing, LARGEST), x)


V = 50304
rows, kept_shares = [], []
for tokens in (2048, 4096, 8192, 9363, 16384, 49152, 65536, 131072, 524288):
    gradient = (1 - 1 / V) / tokens  # gradient of the target's logit at the first step of a zero head
    fixed, derived = 2.0**29, tokens * 2.0**13
    kept = e5m2(gradient * fixed) / (gradient * fixed)
    kept_shares.append(kept)
    rows.append([f"{tokens:,}", f"{gradient * fixed:,.0f}", f"{100 * kept:.0f} %",
                 f"2^{math.log2(SMALLEST / 2 * tokens / fixed):.1f}",
                 f"{100 * e5m2(gradient * derived) / (gradient * derived):.0f} %"])
is_right_everywhere = all(abs(kept - 1) <= 1 / 8 for kept in kept_shares)  # e5m2 has two bits of mantissa
runs.write_section(
    args, "Gradient scale 2^29",
    "a gradient scale of 2^29 before the cast to e5m2 matches the precision of bf16.",
    runs.table(["tokens N", "scaled gradient of a target, step 0", "of it left after the cast",
                "smallest probability whose gradient survives", "left of the target's with N · 2^13"], rows),
    "holds" if is_right_everywhere else "holds in part",
    "2^29 is N · 2^13 at N = 65,536, the token count that it was chosen for, and leaves 2.8 octaves there. Below 9,363 tokens "
    "the targets' gradients, the most informative ones, are clamped; Ingot derives the scale from the token count.")
