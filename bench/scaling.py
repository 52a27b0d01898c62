#!/usr/bin/env python3
"""Plans how training scales over many GPUs: `ingot plan` simulates a step of each model on each number of ranks.

Weak scaling keeps the tokens of a rank, strong scaling keeps the tokens of a step. Prints Markdown tables; with
--out FILE it writes them into docs/scaling.md between its markers. Nothing here needs a GPU.

  python bench/scaling.py [--hardware h100-sxm] [--ranks 1,8,64,256,1024] [--quick] [--json FILE] [--out docs/scaling.md]
"""
import argparse
import datetime
import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAM = ROOT / "build/release/ingot"
BEGIN, END = "<!-- scaling.py begins -->", "<!-- scaling.py ends -->"


def replicas(ranks):
    return {"parallel.dp": ranks}


def shards_within_nodes(ranks):
    return {"parallel.fsdp": min(ranks, 8), "parallel.dp": max(1, ranks // 8)}


def three_axes(ranks):
    """Weights stay gathered within a step (ZeRO-2): to gather them for every micro-batch takes half of the time."""
    if ranks < 32:
        return None
    return {"parallel.tp": 8, "parallel.pp": 4, "parallel.fsdp": ranks // 32, "parallel.fsdp_shards": "gradients"}


# name, preset, layout of a number of ranks, sequences of a micro-batch, micro-batches of a rank in weak scaling
MODELS = [
    ("124M, AdamW", "gpt2-124m", replicas, 16, 4),
    ("276M, Muon and FP8 head", "hybrid-124m", replicas, 1, 1),
    ("1.2B", "llama-1b", replicas, 4, 4),
    ("6.7B", "llama2-7b", shards_within_nodes, 1, 4),
    ("69B", "llama2-70b", three_axes, 1, 32),
]
# Published figures (weak, strong) for the speed run of a GPT-2 124M with Muon and an FP8 head.
PUBLISHED = {8: (7.92, 7.68), 64: (62.1, 58.4)}


def plan(program, preset, hardware, settings):
    line = [program, "plan", preset, "--hardware", hardware, "--json"]
    for key, value in settings.items():
        line += ["--set", f"{key}={value}"]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 4):  # 4: it does not fit
        refusal = done.stderr.strip().splitlines()[-1].removeprefix("ingot: ").removeprefix("--set: ")
        # The rule, without the names of keys and the advice.
        return {"error": "refused: " + re.sub(r" \([^)]*\)", "", refusal.removeprefix("parallel: ")).split(";")[0]}
    return json.loads(done.stdout)


def limit_of(p):
    """What takes most of the time in which a rank does not compute."""
    waits = {name: s for name, s in p["waits_s"].items() if s > 0.01 * p["step_s"]}
    if not waits:
        return "products"
    name = max(waits, key=waits.get)
    return f"{name} {100 * waits[name] / p['step_s']:.0f} %"


def rows_of(program, model, hardware, ranks, is_weak):
    name, preset, layout_of, sequences, micros = model
    rows, first = [], None
    for n in ranks:
        layout = layout_of(n)
        if layout is None:
            rows.append({"model": name, "ranks": n, "error": "needs 32 ranks"})
            continue
        data_ranks = layout.get("parallel.dp", 1) * layout.get("parallel.fsdp", 1)
        # A step of strong scaling has what 64 data-parallel ranks take in weak scaling.
        wanted = micros * (data_ranks if is_weak else 64)
        settings = dict(layout, **{"train.batch_size": sequences, "train.grad_accum": wanted, "precision.compute": "bf16"})
        p = plan(program, preset, hardware, settings)
        if "error" in p:
            rows.append({"model": name, "ranks": n, "error": p["error"]})
            continue
        first = first or (n, p["tokens_per_s"])
        rows.append({"model": name, "ranks": n, "layout": p["layout"], "step_s": p["step_s"], "mfu": p["mfu"],
                     "tokens_per_s": p["tokens_per_s"], "times": first[0] * p["tokens_per_s"] / first[1],
                     "exposed": p["exposed_comm_s"] / p["step_s"], "bubble": p["bubble"], "fits": p["fits"],
                     "limit": limit_of(p)})
    return rows


def table(rows, is_weak):
    lines = ["| model | ranks | layout | step | tokens/s | times | MFU | exposed | bubble | most waited for |",
             "|---|---|---|---|---|---|---|---|---|---|"]
    for row in rows:
        if "error" in row:
            lines.append(f"| {row['model']} | {row['ranks']} | {row['error']} | | | | | | | |")
            continue
        published = PUBLISHED.get(row["ranks"]) if "Muon" in row["model"] else None
        times = f"{row['times']:.2f}" + (f" (published {published[0 if is_weak else 1]})" if published else "")
        lines.append(f"| {row['model']} | {row['ranks']} | {row['layout']}{'' if row['fits'] else ', does not fit'} "
                     f"| {1e3 * row['step_s']:.1f} ms | {row['tokens_per_s'] / 1e6:.2f}M | {times} | {100 * row['mfu']:.1f} % "
                     f"| {100 * row['exposed']:.1f} % | {100 * row['bubble']:.1f} % | {row['limit']} |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hardware", default="h100-sxm")
    parser.add_argument("--ranks", default="1,8,64,256,1024")
    parser.add_argument("--quick", action="store_true", help="only 1 and 8 ranks; the rows must be those of docs/scaling.md")
    parser.add_argument("--program", default=str(PROGRAM), help="the ingot program")
    parser.add_argument("--json", help="write the rows to this file")
    parser.add_argument("--out", help="write the tables into this Markdown file")
    arguments = parser.parse_args()
    ranks = [1, 8] if arguments.quick else [int(n) for n in arguments.ranks.split(",")]
    result, texts = {}, []
    for kind in ("weak", "strong"):
        rows = [row for model in MODELS for row in rows_of(arguments.program, model, arguments.hardware, ranks, kind == "weak")]
        result[kind] = rows
        what = "the tokens of a rank stay" if kind == "weak" else "the tokens of a step stay"
        texts.append(f"### {kind.capitalize()} scaling on {arguments.hardware}: {what}\n\n{table(rows, kind == 'weak')}")
    date = datetime.date.today().isoformat()
    texts.append(f"`python bench/scaling.py --hardware {arguments.hardware}`, {date}; simulated, on no GPU.")
    text = "\n\n".join(texts)
    print(text)
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps(result, indent=1), encoding="utf-8")
    if arguments.out:
        file = pathlib.Path(arguments.out)
        before, rest = file.read_text(encoding="utf-8").split(BEGIN)
        file.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{rest.split(END)[1]}", encoding="utf-8")
    if not arguments.quick:
        return 0
    page = (ROOT / "docs/scaling.md").read_text(encoding="utf-8").splitlines()
    strange = [line for line in text.splitlines() if line.startswith("| ") and line not in page]
    # Eight replicas are nearly eight times as fast as one rank.
    strange += [str(row) for rows in result.values() for row in rows
                if row.get("layout") == "dp=8" and not 7.5 < row["times"] < 8]
    for line in strange:
        print(f"not as in docs/scaling.md, or not plausible: {line}", file=sys.stderr)
    return 1 if strange else 0


if __name__ == "__main__":
    sys.exit(main())
