#!/usr/bin/env python3
"""Times PyTorch on the same card: bench/pytorch_model.py with torch.compile, bf16 autocast, flash attention and fused
AdamW. Prints tokens/s, MFU (model FLOP/s over the card's measured rate of bf16 products) and peak memory per model.

  python bench/gpu/torch_baseline.py [--models gpt2-124m llama-350m llama-1.3b] [--steps 10] [--json OUT.json]

FLOPs per token: 6 per parameter that takes part in a product, and 6 * layers * width * T for causal attention (half of
the square). Exits with 77 if there is no GPU."""
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
    "llama-350m": (dict(layers=24, heads=16, width=1024, ffn=2816, context=2048, vocab=32000, is_tied=False), 16, 2048),
    "llama-1.3b": (dict(layers=24, heads=16, width=2048, ffn=5632, context=2048, vocab=32000, is_tied=False), 8, 2048),
}


def product_rate(torch):
    """Returns the median FLOP/s of an 8192 x 8192 x 8192 bf16 product on random data."""
    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    times = []
    for i in range(23):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        a @ b
        end.record()
        end.synchronize()
        if i >= 3:
            times.append(begin.elapsed_time(end) * 1e-3)
    return 2 * 8192**3 / statistics.median(times)


def measure(torch, name, steps, peak):
    from pytorch_model import Model, ModelConfig, adamw

    fields, B, T = MODELS[name]
    torch.manual_seed(1)
    torch.cuda.reset_peak_memory_stats()
    model = Model(ModelConfig(**fields)).cuda()
    optimizer = adamw(model, 1e-4, (0.9, 0.95), 0.1, fused=True)
    run = torch.compile(model)
    tokens = torch.randint(0, fields["vocab"], (B, T + 1), device="cuda")

    def step():
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = run(tokens[:, :-1], tokens[:, 1:])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    begin = time.perf_counter()
    for _ in range(3):
        step()
    torch.cuda.synchronize()
    warm_up_s = time.perf_counter() - begin
    times = []
    for _ in range(steps):
        begin = time.perf_counter()
        loss = step()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - begin)
    step_s = statistics.median(times)
    in_products = sum(p.numel() for p in model.parameters() if p.dim() == 2)
    in_products -= model.config.context * model.config.width if model.positions is not None else 0
    in_products -= 0 if model.config.is_tied else model.config.vocab * model.config.width
    flops = B * T * (6 * in_products + 6 * model.config.layers * model.config.width * T)
    row = {"model": name, "step_ms": step_s * 1e3, "tokens_per_s": B * T / step_s, "mfu": flops / step_s / peak,
           "peak_gib": torch.cuda.max_memory_allocated() / 2**30, "warm_up_s": warm_up_s, "loss": loss.item()}
    print("torch {model:<12} {step_ms:8.1f} ms {tokens_per_s:10.0f} tokens/s  MFU {mfu:6.1%}  peak {peak_gib:5.1f} GiB"
          "  compiled in {warm_up_s:.0f} s".format(**row), flush=True)
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--json")
    options = parser.parse_args()
    try:
        import torch
    except ImportError:
        print("torch is not installed")
        return 77
    if not torch.cuda.is_available():
        print("torch sees no GPU")
        return 77
    torch.set_float32_matmul_precision("high")
    peak = product_rate(torch)
    print(f"torch {torch.__version__} on {torch.cuda.get_device_name()}: bf16 product {peak * 1e-12:.0f} TFLOP/s", flush=True)
    result = {"torch": torch.__version__, "device": torch.cuda.get_device_name(), "bf16_tflops": peak * 1e-12,
              "models": []}
    for name in options.models:
        result["models"].append(measure(torch, name, options.steps, peak))
        torch._dynamo.reset()
        torch.cuda.empty_cache()
        if options.json:
            pathlib.Path(options.json).write_text(json.dumps(result, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
