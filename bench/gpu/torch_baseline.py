#!/usr/bin/env python3
"""Runs PyTorch on the card that Ingot is measured on: bench/pytorch_model.py with torch.compile, bf16 autocast, flash
attention and fused AdamW.

  python bench/gpu/torch_baseline.py serve MODEL [--dry]
      makes and compiles the model, prints one JSON line, then reads commands from stdin: "run SECONDS" trains for that
      long and prints a JSON line, "end" or the end of stdin ends the program. Between commands it holds the weights and
      gives the rest of the memory back, so that another program can be timed in alternation.
  python bench/gpu/torch_baseline.py warm MODEL [--dry]
      compiles the model as `serve` does, so that the code is in TORCHINDUCTOR_CACHE_DIR, and prints one JSON line. It takes
      less than half of the GPU's memory.
  python bench/gpu/torch_baseline.py losses FOLDER --steps N --compute f32|bf16 [--compile] [--dry]
      FOLDER has model.json (fields of ModelConfig), train.bin (nanoGPT's 16-bit tokens), batch (sequences), seed and rate:
      writes FOLDER/init (a folder of Hugging Face) for `ingot train --init`, trains N steps on the windows that Ingot's
      data.order = "random" takes, and prints a JSON line with the loss of every step. Products in f32 are not TF32's.

FLOPs per token: 6 per parameter that takes part in a product, and 6 * layers * width * T for causal attention (half of
the square). --dry computes on the CPU in a few seconds. Exits with 77 if there is no torch, or no GPU."""
import argparse
import json
import pathlib
import statistics
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

MODELS = {  # fields of ModelConfig, sequences per micro-batch, tokens per sequence
    "gpt2-124m": (dict(layers=12, heads=12, width=768, ffn=3072, context=1024, vocab=50304, norm="layer_norm",
                       positions="learned", mlp="gelu_tanh", has_bias=True), 64, 1024),
    "llama-1.3b": (dict(layers=24, heads=16, width=2048, ffn=5632, context=2048, vocab=32000, is_tied=False), 8, 2048),
}
DRY = dict(layers=1, heads=2, width=32, ffn=64, context=16, vocab=512)


def say(row):
    print(json.dumps(row), flush=True)


class Card:
    """What differs between the GPU and a dry run on the CPU."""

    def __init__(self, torch, is_dry):
        self.torch, self.is_dry = torch, is_dry
        self.device = "cpu" if is_dry else "cuda"

    def synchronize(self):
        if not self.is_dry:
            self.torch.cuda.synchronize()

    def free_bytes(self):
        return 0 if self.is_dry else self.torch.cuda.mem_get_info()[0]

    def give_back(self):
        if not self.is_dry:
            self.torch.cuda.empty_cache()

    def model(self, config):
        from pytorch_model import Model

        with self.torch.device(self.device):  # draws the weights there, too
            return Model(config)

    def compile(self, model):
        """GPT-2 as a whole; the 24 equal blocks of a LLaMA one by one, which saves a minute, and its loss."""
        if self.is_dry:
            return
        if model.positions is not None:
            model.compile()
            return
        for block in model.blocks:
            block.compile()
        model.loss = self.torch.compile(model.loss)


def product_rate(card):
    """Returns the median FLOP/s of a bf16 product of 8192 x 8192 x 8192 (dry: 64) on random data."""
    torch, size = card.torch, 64 if card.is_dry else 8192
    a, b = (torch.randn(size, size, device=card.device, dtype=torch.bfloat16) for _ in range(2))
    times = []
    for i in range(23):
        card.synchronize()
        begin = time.perf_counter()
        a @ b
        card.synchronize()
        if i >= 3:
            times.append(time.perf_counter() - begin)
    return 2 * size**3 / statistics.median(times)


def flops_per_token(model):
    c = model.config
    in_products = sum(p.numel() for p in model.parameters() if p.dim() == 2)
    in_products -= c.context * c.width if model.positions is not None else 0
    in_products -= 0 if c.is_tied else c.vocab * c.width
    return 6 * in_products + 6 * c.layers * c.width * c.context


class Training:
    """A model, its optimizer, and one step."""

    def __init__(self, card, model, lr, is_bf16=True):
        from pytorch_model import adamw

        self.card, self.model, self.is_bf16 = card, model, is_bf16
        self.optimizer = adamw(model, lr, (0.9, 0.95), 0.1, **({} if card.is_dry else {"fused": True}))

    def passes(self, tokens, targets):
        """Forward and backward; returns the loss."""
        with self.card.torch.autocast(self.card.device, dtype=self.card.torch.bfloat16, enabled=self.is_bf16):
            loss = self.model(tokens, targets)
        loss.backward()
        return loss

    def step(self, tokens, targets):
        loss = self.passes(tokens, targets)
        self.card.torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.detach()


def compiled_training(card, name):
    """Returns Training of a model, and a batch of random tokens (B, T + 1)."""
    from pytorch_model import ModelConfig

    fields, B, T = MODELS[name]
    if card.is_dry:
        fields, B, T = {**fields, **DRY}, 2, DRY["context"]
    card.torch.manual_seed(1)
    model = card.model(ModelConfig(**fields))
    card.compile(model)
    return Training(card, model, 1e-4), card.torch.randint(0, fields["vocab"], (B, T + 1), device=card.device)


def warm(card, name):
    if not card.is_dry:
        card.torch.cuda.set_per_process_memory_fraction(0.45)
    begin = time.perf_counter()
    training, data = compiled_training(card, name)
    training.passes(data[:, :-1], data[:, 1:])
    card.synchronize()
    say({"warm_up_s": time.perf_counter() - begin})


def serve(card, name):
    torch = card.torch
    peak = product_rate(card)
    free = card.free_bytes()
    training, data = compiled_training(card, name)
    B, T = data.shape[0], data.shape[1] - 1
    begin = time.perf_counter()
    for _ in range(3):
        training.step(data[:, :-1], data[:, 1:])
    card.synchronize()
    flops = B * T * flops_per_token(training.model)
    say({"torch": torch.__version__, "warm_up_s": time.perf_counter() - begin, "tflops_measured": peak * 1e-12,
         "device_bytes": free - card.free_bytes(),
         "device": "cpu" if card.is_dry else torch.cuda.get_device_name()})
    card.give_back()
    for line in sys.stdin:
        words = line.split()
        if words != ["end"] and len(words) != 2:
            raise SystemExit(f"{line!r}: a command is `run SECONDS` or `end`")
        if words == ["end"]:
            return
        training.step(data[:, :-1], data[:, 1:])  # takes the memory again
        card.synchronize()
        times, stop_at = [], time.perf_counter() + float(words[1])
        while len(times) < 3 or time.perf_counter() < stop_at:
            begin = time.perf_counter()
            loss = training.step(data[:, :-1], data[:, 1:])
            card.synchronize()
            times.append(time.perf_counter() - begin)
        step_s = statistics.median(times)
        say({"step_ms": step_s * 1e3, "tokens_per_s": B * T / step_s, "tflops": flops / step_s * 1e-12,
             "mfu": flops / step_s / peak, "steps": len(times), "loss": loss.item()})
        card.give_back()


def philox(counter, key):
    """Philox4x32-10 (Salmon et al. 2011) of four 32-bit words."""
    for _ in range(10):
        p0, p1 = 0xD2511F53 * counter[0], 0xCD9E8D57 * counter[2]
        counter = (p1 >> 32 ^ counter[1] ^ key[0], p1 & 0xFFFFFFFF, p0 >> 32 ^ counter[3] ^ key[1], p0 & 0xFFFFFFFF)
        key = (key[0] + 0x9E3779B9 & 0xFFFFFFFF, key[1] + 0xBB67AE85 & 0xFFFFFFFF)
    return counter


def window_start(seed, sample, tokens, context):
    """The first token of a sample in the order "random" (ingot/data/sampler.h)."""
    shuffle = 3  # Purpose::kShuffle
    words = philox((sample & 0xFFFFFFFF, sample >> 32, 0, shuffle << 24), (seed & 0xFFFFFFFF, seed >> 32))
    return (words[0] | words[1] << 32) * (tokens - context) >> 64


def write_tokenizer(vocab, path):
    """Writes a tokenizer.json with `vocab` tokens, because `ingot train --init` asks for one: GPT-2's 256 bytes, and names."""
    plain = [b for b in range(256) if 33 <= b <= 126 or 161 <= b <= 172 or 174 <= b <= 255]
    others = [b for b in range(256) if b not in plain]
    tokens = [chr(b) for b in plain] + [chr(256 + i) for i in range(len(others))]
    tokens += [f"token{i}" for i in range(len(tokens), vocab)]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    path.write_text(json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
        "pre_tokenizer": byte_level, "post_processor": None, "decoder": byte_level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
                  "fuse_unk": False, "byte_fallback": False, "vocab": {token: i for i, token in enumerate(tokens)},
                  "merges": []}}) + "\n")


def write_hf_folder(model, folder):
    """Writes the weights as a GPT-2 of Hugging Face."""
    from pytorch_model import hf_tensors
    from safetensors.torch import save_file

    c = model.config
    folder.mkdir(exist_ok=True)
    save_file(hf_tensors(c, dict(model.named_parameters())), str(folder / "model.safetensors"), {"format": "pt"})
    config = {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "n_layer": c.layers, "n_head": c.heads,
              "n_embd": c.width, "n_inner": c.ffn, "n_positions": c.context, "vocab_size": c.vocab,
              "activation_function": "gelu_new", "layer_norm_epsilon": c.norm_eps, "tie_word_embeddings": c.is_tied}
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    write_tokenizer(c.vocab, folder / "tokenizer.json")


def losses(card, folder, steps, compute, is_compiled):
    from pytorch_model import ModelConfig

    torch = card.torch
    job = json.loads((folder / "model.json").read_text())
    torch.manual_seed(1)
    model = card.model(ModelConfig(**job["model"]))
    write_hf_folder(model, folder / "init")
    if is_compiled:
        card.compile(model)
    tokens = torch.frombuffer(bytearray((folder / "train.bin").read_bytes()), dtype=torch.uint16).to(torch.int64)
    training, T = Training(card, model, job["rate"], compute == "bf16"), model.config.context
    losses_seen = []
    for step in range(steps):
        starts = [window_start(job["seed"], step * job["batch"] + i, len(tokens), T) for i in range(job["batch"])]
        rows = torch.stack([tokens[at:at + T + 1] for at in starts]).to(card.device)
        losses_seen.append(training.step(rows[:, :-1], rows[:, 1:]))
    say({"losses": [loss.item() for loss in losses_seen]})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    serving, warming = commands.add_parser("serve"), commands.add_parser("warm")
    for command in (serving, warming):
        command.add_argument("model", choices=MODELS)
    comparing = commands.add_parser("losses")
    comparing.add_argument("folder", type=pathlib.Path)
    comparing.add_argument("--steps", type=int, default=200)
    comparing.add_argument("--compute", choices=("f32", "bf16"), default="bf16")
    comparing.add_argument("--compile", action="store_true")
    for command in (serving, warming, comparing):
        command.add_argument("--dry", action="store_true", help="compute on the CPU in a few seconds")
    options = parser.parse_args()
    try:
        import torch
    except ImportError:
        print("torch is not installed", file=sys.stderr)
        return 77
    if not options.dry and not torch.cuda.is_available():
        print("torch sees no GPU", file=sys.stderr)
        return 77
    card = Card(torch, options.dry)
    if options.command == "losses":
        losses(card, options.folder, options.steps, options.compute, options.compile)
    else:
        torch.set_float32_matmul_precision("high")
        {"serve": serve, "warm": warm}[options.command](card, options.model)
    return 0


if __name__ == "__main__":
    sys.exit(main())
