#!/usr/bin/env python3
"""PyTorch's side of bench/compare_pytorch.py: makes one measurement per process and prints one JSON object.

  python bench/pytorch_run.py step  '{"model": {...}, "dtype": "f32", "batch_size": 4, "steps": 5, ...}'
  python bench/pytorch_run.py train --data tinyshakespeare.txt [--seed 1337] [--dtype f32] [--compile]

`train` is nanoGPT's published CPU run (its README; train.py and config/train_shakespeare_char.py at commit
3adf61e), reimplemented with every detail that affects the loss or the time:

  data      characters; vocabulary = the sorted set of them (65, not padded); the first int(0.9 n) train, the rest
            validate; a batch is 12 windows of 64 at uniform offsets in [0, n - 64), targets shifted by one;
            windows are drawn with replacement, there are no epochs
  model     4 layers, 4 heads, 128 wide, context 64, MLP 4x; no biases anywhere (LayerNorm has a weight only),
            LayerNorm eps 1e-5, exact (erf) GELU, learned positions, head tied to the embedding, no dropout, no cap
  init      every matrix and both tables N(0, 0.02); the attention and MLP projections into the residual stream
            N(0, 0.02/sqrt(2 * 4)); norm weights 1
  AdamW     lr 1e-3, betas (0.9, 0.99), eps 1e-8; decay 0.1 on tensors of two dims or more, so on both tables
            too, none on norm weights; global-norm clipping at 1.0, factor min(1, 1/(norm + 1e-6))
  schedule  step i < 100: lr (i + 1)/101; then min_lr + (lr - min_lr)(1 + cos(pi (i - 100)/1900))/2 down to
            min_lr = 1e-4 at i = 2000. (Before 2024-12 nanoGPT's warm-up was lr i/100.)
  loop      evaluation before steps 0, 250, ..., 2000: mean loss of 20 random batches of the train split and 20
            of the validation split; a checkpoint (weights and optimizer) whenever the validation loss improves;
            2001 updates, so the evaluation at 2000 sees the model after 2000 of them and none sees the last
  dtype     float32: on the CPU nanoGPT runs without autocast whatever its `dtype` says

With nanoGPT's initial weights and its batches, 80 steps spread over the whole schedule reproduce nanoGPT's losses to
3e-6. nanoGPT's printed validation loss is the mean of 240 random windows, which varies by about 0.015 with the seed;
`val_loss` here is over the whole validation split (seed 1337: 1.901, where the estimate said 1.917).
"""

import argparse
import json
import math
import os
import resource
import signal
import sys
import tempfile
import time

PROCESS_START = time.perf_counter()

import torch  # noqa: E402

from pytorch_model import CapConfig, Model, ModelConfig, adamw, schedule  # noqa: E402

NANOGPT = ModelConfig(layers=4, heads=4, width=128, context=64, vocab=65, norm="layer_norm", positions="learned",
                      mlp="gelu_exact", has_bias=False, is_tied=True, norm_eps=1e-5, projection_init="scaled")
RECIPE = dict(batch_size=12, steps=2000, lr=1e-3, betas=(0.9, 0.99), weight_decay=0.1, grad_clip=1.0,
              warmup_steps=100, floor=0.1, eval_every=250, eval_batches=20)
OPTIMIZERS = {"fused": {"fused": True}, "foreach": {"foreach": True}, "plain": {"foreach": False}}


def peak_rss_bytes():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def autocast(dtype):
    return torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype == "bf16")


def synthetic_batch(step, batch_size, context, vocab):
    """Returns tokens, targets (B, T). Token i of the stream is floor((i * 2654435761 mod 2^32) * vocab / 2^32);
    sequence b of step s reads T + 1 tokens from (s * B + b) * (T + 1). Ingot's `bench step` uses the same data."""
    rows = (torch.arange(batch_size) + step * batch_size)[:, None] * (context + 1)
    index = rows + torch.arange(context + 1)
    ids = ((index * 2654435761 & 0xFFFFFFFF) * vocab) >> 32
    return ids[:, :-1].contiguous(), ids[:, 1:].contiguous()


def update(model, optimizer, tokens, targets, dtype, grad_clip):
    """One training step; returns the loss as a float."""
    with autocast(dtype):
        loss = model(tokens, targets)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), grad_clip)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return loss.item()


class SlowStep(Exception):
    pass


def stop_slow_step(*_):
    raise SlowStep


def run_step(job):
    torch.set_num_threads(job["threads"])
    torch.manual_seed(1337)
    import_rss = peak_rss_bytes()
    fields = dict(job["model"])
    fields["cap"] = CapConfig(**fields.get("cap", {}))
    model = Model(ModelConfig(**fields))
    optimizer = adamw(model, 1e-3, (0.9, 0.95), 0.1, **OPTIMIZERS[job["optimizer"]])
    run = torch.compile(model) if job["compile"] else model
    losses, times, cut_short = [], [], False
    signal.signal(signal.SIGALRM, stop_slow_step)  # takes effect between two operations of the forward pass
    for step in range(job["warmup"] + job["steps"]):
        is_compiling = job["compile"] and step == 0
        signal.setitimer(signal.ITIMER_REAL, 0 if is_compiling else job["max_s"])
        start = time.perf_counter()
        try:
            tokens, targets = synthetic_batch(step, job["batch_size"], model.config.context, job["token_vocab"])
            losses.append(update(run, optimizer, tokens, targets, job["dtype"], 1.0))
        except SlowStep:
            cut_short = True
        times.append(time.perf_counter() - start)
        if cut_short or (step >= job["warmup"] + 2 and sum(times[1:]) > job["max_s"]):
            break  # slow steps: times fewer of them
    signal.setitimer(signal.ITIMER_REAL, 0)
    timed = sorted(times[-1:] if cut_short else times[job["warmup"]:])
    median = timed[len(timed) // 2] if len(timed) % 2 else sum(timed[len(timed) // 2 - 1:][:2]) / 2
    return {"tokens_per_s": job["batch_size"] * model.config.context / median, "step_ms": 1e3 * median,
            "step_ms_best": 1e3 * timed[0], "first_step_ms": 1e3 * times[0], "loss_first": losses[0] if losses else None,
            "loss_last": losses[-1] if losses else None, "cut_short": cut_short, "peak_rss_bytes": peak_rss_bytes(),
            "import_rss_bytes": import_rss, "parameters": sum(p.numel() for p in model.parameters()),
            "torch": torch.__version__}


class CharData:
    def __init__(self, path):
        text = open(path, encoding="utf-8", newline="").read()
        self.alphabet = sorted(set(text))
        index = {c: i for i, c in enumerate(self.alphabet)}
        ids = torch.tensor([index[c] for c in text])
        cut = int(len(ids) * 0.9)
        self.train, self.val = ids[:cut], ids[cut:]

    @staticmethod
    def draw(part, batch_size, context):
        at = torch.randint(len(part) - context, (batch_size,))[:, None] + torch.arange(context)
        return part[at], part[at + 1]


@torch.no_grad()
def random_loss(model, part, batches, batch_size, context, dtype):
    """Returns nanoGPT's estimate: the mean loss of random batches."""
    with autocast(dtype):
        return sum(model(*CharData.draw(part, batch_size, context)).item() for _ in range(batches)) / batches


@torch.no_grad()
def whole_loss(model, part, context, dtype):
    """Returns the mean loss of consecutive windows: like `ingot eval`, it predicts every token but the first once."""
    total, whole = 0.0, (len(part) - 1) // context * context
    blocks = [(part[:whole].view(-1, context), part[1:whole + 1].view(-1, context))]
    if whole < len(part) - 1:
        blocks.append((part[None, whole:-1], part[None, whole + 1:]))
    for tokens, targets in blocks:
        for x, y in zip(tokens.split(64), targets.split(64)):
            with autocast(dtype):
                total += model(x, y).item() * y.numel()
    return total / (len(part) - 1)


def run_train(args):
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    data, r = CharData(args.data), RECIPE
    config = ModelConfig(**{**NANOGPT.json(), "cap": CapConfig(), "vocab": len(data.alphabet)})
    model = Model(config)
    optimizer = adamw(model, r["lr"], r["betas"], r["weight_decay"], **OPTIMIZERS[args.optimizer])
    run = torch.compile(model) if args.compile else model
    context, steps = config.context, args.steps or r["steps"]
    result = {"evaluations": [], "eval_s": 0.0, "save_s": 0.0, "seed": args.seed, "dtype": args.dtype}
    start, best = time.perf_counter(), math.inf
    with tempfile.TemporaryDirectory() as folder:
        for step in range(steps + 1):
            for group in optimizer.param_groups:
                group["lr"] = r["lr"] * schedule(step, r["warmup_steps"], r["steps"], r["floor"])
            if step % r["eval_every"] == 0:
                before = time.perf_counter()
                model.eval()
                losses = {name: random_loss(run, part, r["eval_batches"], r["batch_size"], context, args.dtype)
                          for name, part in (("train", data.train), ("val", data.val))}
                model.train()
                result["eval_s"] += time.perf_counter() - before
                result["evaluations"].append({"step": step, **losses})
                if losses["val"] < best and step > 0:
                    before = time.perf_counter()
                    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()},
                               os.path.join(folder, "best.pt"))
                    result["save_s"] += time.perf_counter() - before
                best = min(best, losses["val"])
                print(f"step {step}: train {losses['train']:.4f}, val {losses['val']:.4f}", file=sys.stderr)
            if step < steps:  # leaves out nanoGPT's last update, which no evaluation sees
                tokens, targets = CharData.draw(data.train, r["batch_size"], context)
                update(run, optimizer, tokens, targets, args.dtype, r["grad_clip"])
    end = time.perf_counter()
    result.update(train_s=end - start, wall_s=end - PROCESS_START, peak_rss_bytes=peak_rss_bytes())
    model.eval()
    result["val_loss"] = whole_loss(model, data.val, context, args.dtype)  # does not count as wall time
    result["val_tokens"] = len(data.val) - 1
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    step = commands.add_parser("step")
    step.add_argument("job", type=json.loads)
    train = commands.add_parser("train")
    train.add_argument("--data", required=True)
    train.add_argument("--seed", type=int, default=1337)
    train.add_argument("--dtype", choices=("f32", "bf16"), default="f32")
    train.add_argument("--steps", type=int, default=0, help="stop early; the schedule stays")
    train.add_argument("--threads", type=int, default=os.cpu_count())
    train.add_argument("--optimizer", choices=OPTIMIZERS, default="fused")
    train.add_argument("--compile", action="store_true")
    args = parser.parse_args()
    print(json.dumps(run_step(args.job) if args.command == "step" else run_train(args)))


if __name__ == "__main__":
    main()
