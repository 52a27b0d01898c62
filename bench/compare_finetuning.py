#!/usr/bin/env python3
"""Compares fine-tuning on chats with Ingot, trl and litgpt on this machine's CPU: one model, one file of chats, f32, alternating.

  python bench/compare_finetuning.py [--rounds 7] [--steps 8] [--batch 4] [--rank 16] [--litgpt PYTHON] [--json FILE]

Needs trl, peft and datasets in the Python that runs it (pip install trl peft datasets), and build/release/ingot. PYTHON is one with
litgpt, which takes part if it is given. The model is a LLaMA of 40 million random weights, whose folder `ingot export --hf`
writes; the chats are those of examples/data/make_chats.py. All compute windows of 256 tokens that are full, with a loss on every
token, AdamW in f32 and no activation recomputed. trl packs them by its strategy "wrapped"; Ingot packs whole conversations, which
do not see each other. litgpt does not pack: its model, loss and optimizer are called on random tokens as its fine-tuning
loop calls them (litgpt/finetune/full.py and lora.py).

Each measurement is a process of its own, in alternation, for all weights and for adapters of every linear layer. A round's
figure is the median of its steps but the first two; a row has the median over rounds of each side and of its ratio to
Ingot's, with the interval that bench/stats.py gives. Memory is the peak of the process with its libraries.
"""
import argparse
import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile
import time

import stats

ROOT = pathlib.Path(__file__).resolve().parents[1]
MODEL = ["model.layers=12", "model.heads=8", "model.width=512", "precision.compute=f32", "train.steps=1", "sample.count=0", "eval.max_tokens=1000"]
CONTEXT = 256
UNTIMED = 2  # steps at the start of a process
ZEPHYR = ("{% for m in messages %}<|{{ m['role'] }}|>\n{{ m['content'] + eos_token }}\n{% endfor %}"
          "{% if add_generation_prompt %}<|assistant|>\n{% endif %}")


def ingot_side(given, folder, rank):
    out = folder / "ingot-run"
    subprocess.run(["rm", "-rf", out], check=True)
    keys = {"data.chat_template": "zephyr", "data.loss_on": "all", "train.steps": given.steps, "train.batch_size": given.batch,
            "train.grad_accum": 1, "precision.compute": "f32", "activations.policy": "none", "eval.every": 0, "eval.max_tokens": 256,
            "checkpoint.every": 0, "lora.rank": rank}
    words = [word for key, value in keys.items() for word in ("--set", f"{key}={value}")]
    subprocess.run([given.program, "train", "sft", "--init", folder / "model", "--data", folder / "chats/chats.jsonl", "--out", out, "--quiet",
                    *words], check=True, stdout=subprocess.DEVNULL)
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    times = [line["step_ms"] / 1e3 for line in lines if "step_ms" in line]
    return {"step_s": statistics.median(times[UNTIMED:]), "peak_rss_bytes": json.loads((out / "run.json").read_text())["peak_rss_bytes"]}


def trl_side(given, folder, rank):
    words = [sys.executable, __file__, "--trl", str(folder), "--rank", str(rank), "--steps", str(given.steps), "--batch", str(given.batch)]
    done = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True, env=os.environ | {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"})
    return json.loads(done.stdout.splitlines()[-1])


def litgpt_side(given, folder, rank):
    words = [given.litgpt, __file__, "--litgpt-model", str(folder), "--rank", str(rank), "--steps", str(given.steps), "--batch", str(given.batch)]
    return json.loads(subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()[-1])


def run_litgpt(given):
    """One measurement of litgpt, in this process."""
    import litgpt
    import litgpt.lora
    import torch
    from litgpt.utils import chunked_cross_entropy
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    model = json.loads((pathlib.Path(given.litgpt_model) / "model/config.json").read_text())
    sizes = {"block_size": CONTEXT, "vocab_size": model["vocab_size"], "padded_vocab_size": model["vocab_size"], "n_layer": model["num_hidden_layers"],
             "n_head": model["num_attention_heads"], "n_query_groups": model["num_key_value_heads"], "n_embd": model["hidden_size"],
             "intermediate_size": model["intermediate_size"], "rotary_percentage": 1.0, "parallel_residual": False, "bias": False,
             "norm_class_name": "RMSNorm", "mlp_class_name": "LLaMAMLP"}
    if given.rank:
        targets = {f"lora_{name}": True for name in ("query", "key", "value", "projection", "mlp")}
        net = litgpt.lora.GPT(litgpt.lora.Config(**sizes, lora_r=given.rank, lora_alpha=2 * given.rank, **targets))
        litgpt.lora.mark_only_lora_as_trainable(net)
    else:
        net = litgpt.GPT(litgpt.Config(**sizes))
    optimizer = torch.optim.AdamW([p for p in net.parameters() if p.requires_grad], lr=2e-5)
    times = []
    for _ in range(given.steps):
        ids = torch.randint(model["vocab_size"], (given.batch, CONTEXT))
        begin = time.perf_counter()
        logits = net(ids, lm_head_chunk_size=128)
        logits[-1] = logits[-1][..., :-1, :]
        chunked_cross_entropy(logits, ids[..., 1:]).backward()
        optimizer.step()
        optimizer.zero_grad()
        times.append(time.perf_counter() - begin)
    print(json.dumps({"step_s": statistics.median(times[UNTIMED:]), "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}))


def run_trl(given):
    """One measurement of trl, in this process."""
    import datasets
    import peft
    import torch
    import transformers
    import trl
    datasets.disable_progress_bars()
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    folder = pathlib.Path(given.trl)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder / "model")
    tokenizer.chat_template, tokenizer.pad_token = ZEPHYR, tokenizer.eos_token
    model = transformers.AutoModelForCausalLM.from_pretrained(folder / "model", dtype=torch.float32)
    lines = [json.loads(line) for line in (folder / "chats/chats.jsonl").read_text().splitlines()]
    times = []

    class Clock(transformers.TrainerCallback):
        def on_step_begin(self, *_, **__):
            times.append(-time.perf_counter())

        def on_step_end(self, *_, **__):
            times[-1] += time.perf_counter()

    config = trl.SFTConfig(
        output_dir=str(folder / "trl-run"), max_steps=given.steps, per_device_train_batch_size=given.batch, max_length=CONTEXT, packing=True,
        packing_strategy="wrapped", learning_rate=2e-5, report_to="none", save_strategy="no", use_cpu=True, bf16=False, disable_tqdm=True,
        gradient_checkpointing=False, logging_strategy="no", assistant_only_loss=False)
    lora = peft.LoraConfig(r=given.rank, lora_alpha=2 * given.rank, target_modules="all-linear", task_type="CAUSAL_LM") if given.rank else None
    trainer = trl.SFTTrainer(model=model, args=config, train_dataset=datasets.Dataset.from_list(lines), processing_class=tokenizer, peft_config=lora,
                             callbacks=[Clock()])
    trainer.train()
    print(json.dumps({"step_s": statistics.median(times[UNTIMED:]), "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", default=str(ROOT / "build/release/ingot"))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--litgpt", metavar="PYTHON", help="a Python that has litgpt")
    parser.add_argument("--trl", help=argparse.SUPPRESS)
    parser.add_argument("--litgpt-model", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.trl:
        return run_trl(given)
    if given.litgpt_model:
        return run_litgpt(given)
    others = {"trl": trl_side, **({"litgpt": litgpt_side} if given.litgpt else {})}
    rows = {}
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        subprocess.run([sys.executable, ROOT / "examples/data/make_chats.py", folder / "chats"], check=True)
        words = [word for key in MODEL for word in ("--set", key)]
        (folder / "text.txt").write_text("".join(page.read_text() for page in sorted((ROOT / "docs").glob("*.md"))))
        subprocess.run([given.program, "train", "books-10m", "--data", folder / "text.txt", "--out", folder / "base", "--quiet", *words], check=True)
        subprocess.run([given.program, "export", folder / "base", "--hf", folder / "model", "--quiet"], check=True)
        for name, rank in (("all weights", 0), (f"adapters of rank {given.rank}", given.rank)):
            rounds = []
            for _ in range(given.rounds):
                rounds.append({"ingot": ingot_side(given, folder, rank), **{other: side(given, folder, rank) for other, side in others.items()}})
                print(f"{name}: {rounds[-1]}", file=sys.stderr)
            rows[name] = {"rounds": rounds}
    tokens = given.batch * CONTEXT
    print(f"{'':24} {'':8} {'s per step of %d tokens' % tokens:>26} {'over Ingot':>20} {'MB':>8} {'over Ingot':>20}")
    for name, row in rows.items():
        for side in ("ingot", *others):
            cells = []
            for key, unit in (("step_s", 1), ("peak_rss_bytes", 1e6)):
                ratios = [one[side][key] / one["ingot"][key] for one in row["rounds"]]
                spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
                if len(ratios) >= stats.LEAST_ROUNDS:
                    interval = stats.median_interval(ratios)
                    spread = f"{interval.low:.2f} to {interval.high:.2f}"
                middle = statistics.median(one[side][key] / unit for one in row["rounds"])
                row[f"{side} {key}"] = {"median": middle, "over_ingot": statistics.median(ratios), "spread": spread}
                cells += [f"{middle:.2f}" if unit == 1 else f"{middle:.0f}", "" if side == "ingot" else f"{statistics.median(ratios):.2f} ({spread})"]
            print(f"{name:24} {side:8} {cells[0]:>26} {cells[1]:>20} {cells[2]:>8} {cells[3]:>20}")
    if given.json:
        given.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    sys.exit(main())
