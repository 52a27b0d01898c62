#!/usr/bin/env python3
"""Writes tests/golden/models/: tiny models with what PyTorch computes for them (format: the README there).

  python tools/export_golden.py [NAME...] [--out tests/golden/models] [--check]

GPT-2 and LLaMA are Hugging Face's GPT2LMHeadModel and LlamaForCausalLM. bench/pytorch_model.py computes each a second
time in double precision, and the script fails if the two do not agree. Models that Hugging Face does not have (no
biases with exact GELU, the speed-run variant) are computed by bench/pytorch_model.py in float32 and compared with the
same in double precision. --check recomputes everything and compares with the files instead of writing them. The
script is deterministic: one thread, fixed seeds.

Needs: pip install -r tools/requirements-oracle.txt
"""

import argparse
import json
import math
import sys
from pathlib import Path

import torch
import transformers
from safetensors.torch import load_file, save_file
from torch.nn import functional as F

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "bench"))
from pytorch_model import (  # noqa: E402
    IGNORE, CapConfig, Model, ModelConfig, adamw, hf_tensors, load_hf, rope_tables, schedule)

STEPS = 10
RECIPE = {"steps": STEPS, "lr": 1e-2, "beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "weight_decay": 0.1,
          "grad_clip": 1.0, "warmup_steps": 2, "decay_steps": STEPS, "floor": 0.1}
HALF_RUNS = 32  # runs of a 16-bit dtype, to see how its error spreads; their starts differ by up to JITTER
JITTER = {torch.bfloat16: 2.0**-11, torch.float16: 2.0**-14}  # an eighth of the error of one rounding
GRAD_CLIP = {"tiny_gpt2_nobias": 5.0, "tiny_llama": 5.0}  # these limits clip some steps and not others

GPT2 = dict(norm="layer_norm", positions="learned", has_bias=True, is_tied=True)
SPEED = dict(norm="rms_norm_weightless", mlp="relu2", is_tied=False, has_qk_norm=True, norm_eps=1e-6)
# The sizes are odd on purpose: the vocabulary is prime, the context of some is odd, F is not a multiple of 16,
# and heads * head_dim differs from the width in the GQA model. `hf` names the Hugging Face class, if it has one.
MODELS = {
    "tiny_gpt2": ("gpt2", 1, ModelConfig(layers=2, heads=3, width=24, ffn=40, context=16, vocab=61,
                                         mlp="gelu_tanh", **GPT2)),
    "tiny_gpt2_nobias": (None, 2, ModelConfig(layers=2, heads=2, width=16, ffn=64, context=15, vocab=61,
                                              mlp="gelu_exact", **{**GPT2, "has_bias": False})),
    "tiny_llama": ("llama", 3, ModelConfig(layers=2, heads=3, width=24, ffn=44, context=17, vocab=61, is_tied=False)),
    "tiny_llama_tied_gqa": ("llama", 4, ModelConfig(layers=2, heads=4, kv_heads=2, head_dim=8, width=24, ffn=36,
                                                    context=16, vocab=61, rope_theta=500.0, norm_eps=1e-6)),
    "tiny_speedrun_sigmoid": (None, 5, ModelConfig(layers=2, heads=3, width=24, ffn=96, context=16, vocab=61,
                                                   cap=CapConfig("sigmoid", 30.0, 0.0, 7.5), **SPEED)),
    "tiny_speedrun_tanh": (None, 6, ModelConfig(layers=2, heads=4, kv_heads=1, head_dim=6, width=20, ffn=52, context=13,
                                                vocab=61, cap=CapConfig("tanh", 15.0, 0.0, 7.5), **SPEED)),
    "tiny_speedrun_whole": (None, 7, ModelConfig(layers=6, heads=2, head_dim=8, width=20, ffn=24, context=13, vocab=61,
                                                 cap=CapConfig("sigmoid", 30.0, 0.0, 7.5), rope_dims=4, mlp_only_layers=[3],
                                                 has_embedding_norm=True, has_input_mix=True, has_skips=True,
                                                 value_embeddings=2, **SPEED)),
}


def randomise(model, generator):
    """Sets weights large enough that no gradient is tiny and the logit cap acts: matrices N(0, 1.5/sqrt(in)),
    tables N(0, 0.7), norm weights 1 + N(0, 0.2), biases N(0, 0.1)."""
    with torch.no_grad():
        for name, p in model.named_parameters():
            noise = torch.randn(p.shape, generator=generator)
            if p.dim() == 2 and name.startswith(("embedding", "positions", "value_embeddings")):
                p.copy_(0.7 * noise)
            elif p.dim() == 2:
                p.copy_(1.5 / math.sqrt(p.shape[1]) * noise)
            else:
                p.copy_(0.1 * noise if name.endswith("bias") else 1 + 0.2 * noise)


def draw_batch(config, batch, ignored, generator):
    """Returns tokens, targets (B, T) of one random stream; targets are shifted by one, some of them are IGNORE."""
    stream = torch.randint(config.vocab, (batch, config.context + 1), generator=generator)
    tokens, targets = stream[:, :-1].clone(), stream[:, 1:].clone()
    where = torch.randperm(targets.numel(), generator=generator)[:ignored]
    targets.view(-1)[where] = IGNORE
    return tokens, targets


def hf_config(kind, c):
    if kind == "llama":
        return transformers.LlamaConfig(
            vocab_size=c.vocab, hidden_size=c.width, intermediate_size=c.ffn, num_hidden_layers=c.layers,
            num_attention_heads=c.heads, num_key_value_heads=c.kv_heads, head_dim=c.head_dim, hidden_act="silu",
            max_position_embeddings=c.context, rms_norm_eps=c.norm_eps, tie_word_embeddings=c.is_tied,
            rope_parameters={"rope_type": "default", "rope_theta": c.rope_theta}, bos_token_id=0, eos_token_id=0)
    return transformers.GPT2Config(
        vocab_size=c.vocab, n_positions=c.context, n_embd=c.width, n_layer=c.layers, n_head=c.heads, n_inner=c.ffn,
        activation_function="gelu_new", resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0, eos_token_id=0,
        layer_norm_epsilon=c.norm_eps, tie_word_embeddings=c.is_tied)


class HuggingFace:
    """Wraps a Hugging Face model with the weights of `own` in the few calls that `golden` needs."""

    def __init__(self, kind, own):
        cls = {"gpt2": transformers.GPT2LMHeadModel, "llama": transformers.LlamaForCausalLM}[kind]
        self.hf = cls(hf_config(kind, own.config)).float().eval()
        state = hf_tensors(own.config, dict(own.named_parameters()))
        if own.config.is_tied:
            table = "transformer.wte.weight" if kind == "gpt2" else "model.embed_tokens.weight"
            state["lm_head.weight"] = state[table]
        self.hf.load_state_dict(state, strict=True)
        self.parameters = self.hf.parameters
        self.config_json = {**self.hf.config.to_dict(), "architectures": [cls.__name__], "dtype": "float32"}

    def logits(self, tokens):
        return self.hf(input_ids=tokens, use_cache=False).logits

    def named(self, of):
        return {name: of(p).detach().clone() for name, p in self.hf.named_parameters()}


class Own:
    """Has the same calls for bench/pytorch_model.py, in the dtype of `own`."""

    def __init__(self, own):
        self.own, self.logits, self.parameters = own, own.logits, own.parameters
        self.config_json = None  # Hugging Face has no such model

    def named(self, of):
        return hf_tensors(self.own.config, {name: of(p) for name, p in self.own.named_parameters()})


def loss_of(model, tokens, targets):
    z = model.logits(tokens)
    return z, F.cross_entropy(z.view(-1, z.shape[-1]), targets.reshape(-1), ignore_index=IGNORE)


def golden(model, recipe, batch, training):
    """Returns the logits, loss and gradients of the model and the results of ten training steps, which change it."""
    logits, loss = loss_of(model, *batch)
    loss.backward()
    gradients = model.named(lambda p: p.grad)
    out = {"logits": logits.detach(), "gradients": gradients, "loss": loss.item()}
    parameters = list(model.parameters())
    holder = torch.nn.ParameterList(parameters)
    optimizer = adamw(holder, recipe["lr"], (recipe["beta1"], recipe["beta2"]), recipe["weight_decay"], recipe["eps"],
                      foreach=False)
    out.update(losses=[], grad_norms=[], lrs=[])
    for step, (tokens, targets) in enumerate(training):
        lr = recipe["lr"] * schedule(step, recipe["warmup_steps"], recipe["decay_steps"], recipe["floor"])
        for group in optimizer.param_groups:
            group["lr"] = lr
        optimizer.zero_grad()
        _, loss = loss_of(model, tokens, targets)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(parameters, recipe["grad_clip"])
        optimizer.step()
        out["losses"].append(loss.item())
        out["grad_norms"].append(norm.item())
        out["lrs"].append(lr)
    out["trained"] = model.named(lambda p: p)
    return out


def golden_half(own, dtype, recipe, batch, training, generator):
    """Returns the same, without the trained weights, for a model in a 16-bit dtype throughout with a float32 loss and
    trained float32 masters, to show what rounding to that dtype costs in PyTorch. The masters start up to JITTER off,
    so that every run rounds differently: a single run is only one sample of a random error."""
    jitter = JITTER[dtype]
    masters = [torch.nn.Parameter((p.detach() * (1 + jitter * (2 * torch.rand(p.shape, generator=generator) - 1))).float())
               for p in own.parameters()]
    model = Own(own.to(dtype))

    def run(tokens, targets):
        for p, master in zip(own.parameters(), masters):
            p.data.copy_(master.data)
            p.grad = None
        logits = model.logits(tokens).float()
        loss = F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.reshape(-1), ignore_index=IGNORE)
        loss.backward()
        for p, master in zip(own.parameters(), masters):
            master.grad = p.grad.float()
        return logits.detach(), loss.item()

    logits, loss = run(*batch)
    out = {"logits": logits, "loss": loss, "gradients": model.named(lambda p: p.grad.float()), "losses": [],
           "grad_norms": []}
    optimizer = adamw(torch.nn.ParameterList(masters), recipe["lr"], (recipe["beta1"], recipe["beta2"]),
                      recipe["weight_decay"], recipe["eps"], foreach=False)
    for step, micro in enumerate(training):
        for group in optimizer.param_groups:
            group["lr"] = recipe["lr"] * schedule(step, recipe["warmup_steps"], recipe["decay_steps"], recipe["floor"])
        out["losses"].append(run(*micro)[1])
        out["grad_norms"].append(torch.nn.utils.clip_grad_norm_(masters, recipe["grad_clip"]).item())
        optimizer.step()
    return out


def relative_rms(a, b):
    return ((a.double() - b.double()).square().sum() / b.double().square().sum()).sqrt().item()


def by_size(key, values, wanted, error):
    """Returns the largest error of tensors, and apart from it that of scalars, whose gradients are sums that nearly cancel."""
    found = {}
    for name, value in values.items():
        own = f"scalar_{key}" if value.numel() == 1 else key
        found[own] = max(found.get(own, 0.0), error(value, wanted[name]))
    return found


def compare_half(half, double):
    """Returns how far a 16-bit dtype is from double: relative RMS errors of tensors, relative errors of numbers."""
    return {"logits_rms": relative_rms(half["logits"], double["logits"]),
            # The gradient of GPT-2's key bias is only rounding error; query and value biases share its tensor.
            **by_size("gradients_rms", half["gradients"], double["gradients"], relative_rms),
            "losses_rel": max(abs(a / b - 1) for a, b in zip([half["loss"]] + half["losses"],
                                                             [double["loss"]] + double["losses"])),
            "grad_norms_rel": max(abs(a / b - 1) for a, b in zip(half["grad_norms"], double["grad_norms"]))}


def deviation(a, b):
    """Returns the largest absolute difference, and its fraction of the largest value of b."""
    a, b = a.double(), b.double()
    worst = (a - b).abs().max().item()
    return worst, worst / max(b.abs().max().item(), 1e-300)


def rms_deviation(config, name, a, b):
    """Returns the root mean square difference without GPT-2's key bias: its gradient is zero in exact arithmetic
    (softmax ignores a shift), so AdamW moves it only by rounding noise."""
    a, b = a.double(), b.double()
    if name.endswith("c_attn.bias"):
        key = slice(config.width, 2 * config.width)
        a[key], b[key] = 0.0, 0.0
    return (a - b).square().mean().sqrt().item()


def compare(name, config, single, double):
    """Compares float32 values with the second computation in double precision; returns the record for golden.json."""
    record = {"logits_abs": deviation(single["logits"], double["logits"])[0],
              "loss_abs": abs(single["loss"] - double["loss"]),
              **by_size("gradients_rel", single["gradients"], double["gradients"], lambda a, b: deviation(a, b)[1]),
              "losses_abs": max(abs(a - b) for a, b in zip(single["losses"], double["losses"])),
              "grad_norms_rel": max(abs(a / b - 1) for a, b in zip(single["grad_norms"], double["grad_norms"])),
              "trained_rms": max(rms_deviation(config, n, p, double["trained"][n])
                                 for n, p in single["trained"].items())}
    # A wrong formula shows up at 1e-2 and more. Logits reach 20 and gradients 10 here, after 100 to 200
    # roundings of 6e-8 each, which gives 2e-5 at worst. AdamW's m/sqrt(v) amplifies rounding where a gradient
    # is almost zero, so a few weights may differ by a fraction of lr = 1e-2 after ten steps.
    limits = {"logits_abs": 5e-5, "loss_abs": 2e-6, "gradients_rel": 2e-5, "losses_abs": 2e-4,
              "grad_norms_rel": 2e-4, "trained_rms": 1e-4}
    if "scalar_gradients_rel" in record:
        limits["scalar_gradients_rel"] = 2e-4
    for key, limit in limits.items():
        if not record[key] <= limit:
            sys.exit(f"export_golden: {name}: float32 and double disagree: {key} is {record[key]:.3g}, over {limit:g}")
    return record


def export(name):
    """Returns ({file name: tensors}, {file name: JSON}) for one model."""
    kind, seed, config = MODELS[name]
    generator = torch.Generator().manual_seed(seed)
    own = Model(config).eval()
    config = own.config
    randomise(own, generator)
    batch = draw_batch(config, 3, 5, generator)
    training = [draw_batch(config, 2, step % 3, generator) for step in range(STEPS)]

    weights = hf_tensors(config, dict(own.named_parameters()))
    second = Model(config).eval()
    load_hf(second, weights)  # float32 values, computed in double
    second.double()
    if config.positions == "rope":
        second.cos, second.sin = rope_tables(config.context, config.rope_dims or config.head_dim,
                                             config.rope_theta, torch.float64)
    model = HuggingFace(kind, own) if kind else Own(own)
    recipe = {**RECIPE, "grad_clip": GRAD_CLIP.get(name, RECIPE["grad_clip"])}
    result = golden(model, recipe, batch, training)
    in_double = golden(Own(second), recipe, batch, training)
    record = compare(name, config, result, in_double)
    records_half = {}
    for dtype, key in ((torch.bfloat16, "bfloat16_against_double"), (torch.float16, "float16_against_double")):
        records = []
        for _ in range(HALF_RUNS):
            third = Model(config).eval()
            load_hf(third, weights)
            records.append(compare_half(golden_half(third, dtype, recipe, batch, training, generator), in_double))
        records_half[key] = {name: max(r[name] for r in records) for name in records[0]}

    int32 = lambda x: x.to(torch.int32).contiguous()  # noqa: E731
    tensors = {"tokens": int32(batch[0]), "targets": int32(batch[1]), "logits": result["logits"].float().contiguous(),
               "train_tokens": int32(torch.stack([t for t, _ in training])),
               "train_targets": int32(torch.stack([t for _, t in training]))}
    for prefix in ("gradients", "trained"):
        tensors.update({f"{prefix}.{n}": t.float().contiguous() for n, t in result[prefix].items()})
    facts = {"source": f"transformers {kind}" if kind else "bench/pytorch_model.py", "seed": seed,
             "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
             "model": config.json(), "recipe": recipe, "loss": result["loss"], "losses": result["losses"],
             "grad_norms": result["grad_norms"], "lrs": result["lrs"], "float32_against_double": record,
             **records_half}
    documents = {"golden.json": facts}
    if model.config_json:
        volatile = ("transformers_version", "_name_or_path")
        documents["config.json"] = {k: v for k, v in model.config_json.items() if k not in volatile}
    return {"model.safetensors": weights, "golden.safetensors": tensors}, documents


def write(folder, tensors, documents):
    folder.mkdir(parents=True, exist_ok=True)
    for file, content in tensors.items():
        save_file(content, folder / file, metadata={"format": "pt"})
    for file, content in documents.items():
        (folder / file).write_text(json.dumps(content, indent=1, sort_keys=True) + "\n")
    size = sum(f.stat().st_size for f in folder.iterdir())
    facts = documents["golden.json"]
    print(f"{folder.name:24s} {size / 1000:6.1f} kB  loss {facts['loss']:.6f}  losses {facts['losses'][0]:.4f} .. "
          f"{facts['losses'][-1]:.4f}  grad norms {min(facts['grad_norms']):.2f} .. {max(facts['grad_norms']):.2f}  "
          f"float32 error: logits {facts['float32_against_double']['logits_abs']:.1e}, "
          f"gradients {facts['float32_against_double']['gradients_rel']:.1e} of the largest")
    return size


def check(folder, tensors, documents):
    """Compares recomputed values with the files. Library versions may differ; weights and batches must be equal."""
    worst = 0.0
    for file, content in tensors.items():
        stored = load_file(folder / file)
        if stored.keys() != content.keys():
            sys.exit(f"export_golden: {folder / file}: other tensors than recomputed; run without --check")
        for name, value in content.items():
            trained = name.startswith("trained.")
            config = MODELS[folder.name][2].resolved()
            error = rms_deviation(config, name, value, stored[name]) if trained else deviation(value, stored[name])[0]
            limit = 1e-4
            worst = max(worst, error)
            if not error <= limit:
                sys.exit(f"export_golden: {folder / file}: {name} differs by {error:.3g}, over {limit:g}")
    stored = json.loads((folder / "golden.json").read_text())
    if stored["model"] != documents["golden.json"]["model"] or stored["recipe"] != documents["golden.json"]["recipe"]:
        sys.exit(f"export_golden: {folder / 'golden.json'}: another model or recipe than the script's")
    print(f"{folder.name:24s} agrees, largest difference {worst:.1e}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "tests/golden/models")
    parser.add_argument("--check", action="store_true", help="compare with the files, write nothing")
    parser.add_argument("names", nargs="*", metavar="NAME", help="models; all of them by default")
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    total = 0
    for name in args.names or MODELS:
        tensors, documents = export(name)
        if args.check:
            check(args.out / name, tensors, documents)
        else:
            total += write(args.out / name, tensors, documents)
    if not args.check:
        print(f"wrote {args.out}: {len(args.names or MODELS)} models, {total / 1000:.0f} kB")


if __name__ == "__main__":
    main()
