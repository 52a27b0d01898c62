#!/usr/bin/env python3
"""Loads an Ingot checkpoint in Hugging Face transformers and evaluates it on a text as `ingot eval` does. A checkpoint of
adapters (lora.rank) is loaded by PEFT, on top of the model that its adapter_config.json names.

  python tools/check_hf_export.py CHECKPOINT_DIR --text FILE [--expect EVAL.json [--tolerance 1e-4]]

Prints one JSON object {loss, tokens, bits_per_byte, top1, context, model, tokenizer}; the first five mean what
they mean in `ingot eval CHECKPOINT --data FILE --json`: the whole text as one row of tokens with no special token
added, read in consecutive windows of the model's context, so that every token but the first is predicted
exactly once (the last window may be shorter). `tokens` counts the predicted tokens; `bits_per_byte` is their summed
loss divided by ln 2 and by the bytes of their text. Products run in float32, whatever the checkpoint's dtype.

Exits with 1 and one line that names the fault if the folder does not load unchanged, also if a tensor is missing or
unexpected (transformers alone would initialise a missing one at random), if the tokenizer does not decode the text to
itself, or if the result differs from --expect, the file with the output of `ingot eval --json` for the same text:
tokens and context must be equal, loss and bits_per_byte within --tolerance, top1 within ten tokens or 0.2 %.

Needs: pip install -r tools/requirements-oracle.txt. The script does not use the network.
"""

import argparse
import json
import math
import os
import sys
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRANSFORMERS_OFFLINE"] = "1"

import torch  # noqa: E402
import transformers  # noqa: E402
from torch.nn import functional as F  # noqa: E402


def fail(text):
    sys.exit(f"check_hf_export: {text}")


def load_model(folder):
    config = Path(folder) / "adapter_config.json"
    if not config.is_file():
        return load_whole_model(folder)
    import peft

    model = load_whole_model(json.loads(config.read_text())["base_model_name_or_path"])
    before = {name: value.clone() for name, value in model.state_dict().items()}
    try:
        adapted = peft.PeftModel.from_pretrained(model, folder)
    except Exception as error:
        fail(f"{folder}: peft {peft.__version__} does not load the adapters: {first_line(error)}")
    merged = adapted.merge_and_unload()
    moved = sum(not torch.equal(value, before[name]) for name, value in merged.state_dict().items())
    wanted = len(json.loads(config.read_text())["target_modules"])
    if moved != wanted:
        fail(f"{folder}: peft changes {moved} weights, target_modules has {wanted}")
    return merged.eval()


def load_whole_model(folder):
    try:
        model, info = transformers.AutoModelForCausalLM.from_pretrained(
            folder, local_files_only=True, dtype=torch.float32, output_loading_info=True,
            trust_remote_code=(Path(folder) / "modeling_ingot.py").is_file())
    except Exception as error:  # any exception is a fault of the export
        fail(f"{folder}: transformers {transformers.__version__} does not load the model: {first_line(error)}")
    for what in ("missing_keys", "unexpected_keys", "mismatched_keys", "error_msgs"):
        found = sorted(map(str, info.get(what) or ()))
        if found:
            fail(f"{folder}: {what.replace('_', ' ')}: {', '.join(found[:4])}{' ...' if len(found) > 4 else ''}")
    return model.eval()


def load_tokenizer(folder):
    try:
        return transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except Exception as error:
        fail(f"{folder}: transformers {transformers.__version__} does not load the tokenizer: {first_line(error)}")


def first_line(error):
    return f"{type(error).__name__}: {(str(error).strip() or '(no text)').splitlines()[0]}"


def encode(folder, tokenizer, path):
    """Returns the token ids (n) and the number of bytes of the text of all but the first."""
    try:
        text = Path(path).read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        fail(f"{path}: {error}")
    ids = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
    if tokenizer.decode(ids, clean_up_tokenization_spaces=False, skip_special_tokens=False) != text:
        fail(f"{folder}: the tokenizer's decoding of {path} is not its text")
    if len(ids) < 2:
        fail(f"{path}: {len(ids)} tokens, at least 2 are needed")
    return torch.tensor(ids), len(text.encode()) - len(tokenizer.decode(ids[:1]).encode())


@torch.no_grad()
def measure(model, ids, context):
    """Returns the summed loss, and how often the most likely token was right."""
    total, hits = 0.0, 0
    whole = (len(ids) - 1) // context * context
    windows = list(ids[:whole].view(-1, context).split(16))
    targets = list(ids[1:whole + 1].view(-1, context).split(16))
    if whole < len(ids) - 1:
        windows.append(ids[None, whole:-1])
        targets.append(ids[None, whole + 1:])
    for x, y in zip(windows, targets):
        logits = model(input_ids=x, use_cache=False).logits.float()
        total += F.cross_entropy(logits.flatten(0, 1), y.flatten(), reduction="sum").item()
        hits += (logits.argmax(-1) == y).sum().item()
    return total, hits


def compare(result, path, tolerance):
    try:
        expected = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        fail(f"{path}: {error}")
    limits = {"tokens": 0, "context": 0, "loss": tolerance, "bits_per_byte": tolerance,
              "top1": max(10 / result["tokens"], 2e-3)}
    for key, limit in limits.items():
        if key not in expected:
            fail(f"{path}: no {key!r}")
        if not abs(result[key] - expected[key]) <= limit:
            fail(f"{key} is {result[key]} in transformers, {expected[key]} in {path}; at most {limit:g} apart")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--expect", type=Path, help="file with the output of `ingot eval --json`")
    parser.add_argument("--tolerance", type=float, default=1e-4, help="nats and bits; larger if Ingot computed in bf16")
    args = parser.parse_args()
    if not args.checkpoint.is_dir():
        fail(f"{args.checkpoint}: no such folder")
    for file in ("config.json", "tokenizer.json"):
        if not (args.checkpoint / file).is_file():
            fail(f"{args.checkpoint}: no {file}")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    model, tokenizer = load_model(args.checkpoint), load_tokenizer(args.checkpoint)
    context = model.config.max_position_embeddings
    ids, size_bytes = encode(args.checkpoint, tokenizer, args.text)
    if ids.max() >= model.config.vocab_size:
        fail(f"{args.checkpoint}: the tokenizer gives id {ids.max()}, vocab_size is {model.config.vocab_size}")
    total, hits = measure(model, ids, context)
    tokens = len(ids) - 1
    result = {"loss": total / tokens, "tokens": tokens, "bits_per_byte": total / math.log(2) / size_bytes,
              "top1": hits / tokens, "context": context, "model": type(model).__name__,
              "tokenizer": type(tokenizer).__name__}
    print(json.dumps(result))
    if args.expect:
        compare(result, args.expect, args.tolerance)


if __name__ == "__main__":
    main()
