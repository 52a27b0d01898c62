#!/usr/bin/env python3
"""Computes the loss of a run on pairs of answers (dpo.beta) with trl's DPOTrainer, and compares it with the last validation
loss of the run, and the accuracy with its val_top1.

  python tools/check_dpo.py --write FILE.jsonl --text TEXT
  python tools/check_dpo.py RUN --start MODEL --pairs VAL.jsonl [--beta 0.1] [--tolerance 1e-4]

The first command writes pairs of words of the text. In the second, MODEL is the folder that the run started from, and
VAL.jsonl the run's whole data.val. The last checkpoint of the run is the policy. If it has adapters, trl computes the
reference by disabling them; otherwise MODEL is the reference. Exits with 1 if the losses or the
accuracies differ, or if the run has learned nothing that could tell them apart.

Needs: pip install -r tools/requirements-oracle.txt. The script does not use the network.
"""

import argparse
import json
import os
import random
import sys
import tempfile
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRANSFORMERS_OFFLINE"] = "1"
os.environ["HF_DATASETS_OFFLINE"] = "1"

import datasets  # noqa: E402
import trl  # noqa: E402
from check_hf_export import load_tokenizer, load_whole_model  # noqa: E402


def pairs(words):
    """Returns lines of pairs: with and without an explicit prompt, of one question or several."""
    numbers = random.Random(7)

    def message(role):
        return {"role": role, "content": " ".join(numbers.choices(words, k=numbers.randint(1, 4)))}

    for i in range(40):
        turns = ["system"] * numbers.randint(0, 1) + ["user", "assistant"] * numbers.randint(0, 1) + ["user"]
        prompt = [message(role) for role in turns]
        answer = [[message("assistant")], [message("assistant")]]
        if i % 3 == 0:
            yield json.dumps({"chosen": prompt + answer[0], "rejected": prompt + answer[1]})
        else:
            yield json.dumps({"prompt": prompt, "chosen": answer[0], "rejected": answer[1]})


def with_prompt(line):
    """Returns a pair with a prompt, since all lines of one data set have one form."""
    pair = json.loads(line)
    return pair if "prompt" in pair else trl.extract_prompt(pair)


def trainer_of(checkpoint, start, config, data):
    """Returns trl's trainer, whose policy is the checkpoint."""
    more = {"args": config, "train_dataset": data, "eval_dataset": data, "processing_class": load_tokenizer(checkpoint)}
    if not (checkpoint / "adapter_config.json").is_file():
        return trl.DPOTrainer(model=load_whole_model(checkpoint), ref_model=load_whole_model(start), **more)
    import peft
    import safetensors.torch

    adapters = peft.LoraConfig.from_pretrained(checkpoint)
    adapters.inference_mode = False
    # trl makes adapters of its own, whose reference is the model without them, and they get the checkpoint's numbers.
    trainer = trl.DPOTrainer(model=load_whole_model(start), peft_config=adapters, **more)
    loaded = peft.set_peft_model_state_dict(trainer.model, safetensors.torch.load_file(checkpoint / "adapter_model.safetensors"))
    if loaded.unexpected_keys:
        sys.exit(f"check_dpo: {checkpoint}: peft does not know {loaded.unexpected_keys[:3]}")
    return trainer


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", nargs="?", type=Path)
    parser.add_argument("--write", type=Path)
    parser.add_argument("--text", type=Path)
    parser.add_argument("--start", type=Path)
    parser.add_argument("--pairs", type=Path)
    parser.add_argument("--beta", type=float, default=0.1)
    parser.add_argument("--tolerance", type=float, default=1e-4)
    given = parser.parse_args()
    if given.write:
        given.write.write_text("\n".join(pairs(given.text.read_text().split())) + "\n")
        return
    expected = [row for row in map(json.loads, (given.run / "metrics.jsonl").read_text().splitlines()) if "val_loss" in row][-1]
    checkpoint = max((given.run / "checkpoints").glob("step-*"))
    data = datasets.Dataset.from_list([with_prompt(line) for line in given.pairs.read_text().splitlines()])
    with tempfile.TemporaryDirectory() as scratch:
        config = trl.DPOConfig(output_dir=scratch, beta=given.beta, per_device_eval_batch_size=1, max_length=None, bf16=False,
                               use_cpu=True, report_to=[], disable_tqdm=True, gradient_checkpointing=False)
        got = trainer_of(checkpoint, given.start, config, data).evaluate()
    loss, accuracy = got["eval_loss"], got["eval_rewards/accuracies"]
    print(f"trl {trl.__version__}: loss {loss:.7f}, accuracy {accuracy:.4f}, margin {got['eval_rewards/margins']:.5f} on "
          f"{len(data)} pairs; ingot: "
          f"{expected['val_loss']:.7f}, {expected['val_top1']:.4f} on {expected['val_tokens']}")
    if abs(loss - 0.693147) < 100 * given.tolerance:
        sys.exit(f"check_dpo: {given.run}: the loss is that of a run that has learned nothing")
    if expected["val_tokens"] != len(data) or abs(expected["val_loss"] - loss) > given.tolerance or \
            abs(expected["val_top1"] - accuracy) > 1e-6:
        sys.exit(f"check_dpo: {given.run}: they differ")


if __name__ == "__main__":
    main()
