#!/usr/bin/env python3
"""Computes the loss of a checkpoint on chat data with transformers, conversation by conversation, and with trl, and compares
both with what `ingot eval --json` printed for the same file.

  python tools/check_chat.py --write FILE.jsonl --text TEXT
  python tools/check_chat.py CHECKPOINT_DIR --chat FILE.jsonl --expect EVAL.json [--tolerance 1e-4]

The first command writes conversations of words of the text.

Each conversation is rendered and tokenized by apply_chat_template(tokenize=True). Its labels are -100 outside of the
assistant's turns: a token has a label if one of its characters lies in an assistant's content, or in the end-of-sequence
token behind it. The conversations are not packed, so equal losses also mean that packed ones do not see each other. The
folder's template must be tests/golden/chat/zephyr.jinja. For trl's SFTTrainer (assistant_only_loss) it is marked: an answer is
what a model generates, its content and the end-of-sequence token. Exits with 1 if the number of labels differs, or the mean
loss by more than the tolerance.

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

import datasets  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
import trl  # noqa: E402
from check_hf_export import load_model, load_tokenizer  # noqa: E402

# The answer of zephyr.jinja, and the same text with the marks by which trl finds what a model generates. A line break behind a
# mark is not written, and one behind an expression is.
ANSWER = "{{ '<|assistant|>\\n'  + message['content'] + eos_token }}"
MARKED = "{{ '<|assistant|>\\n' }}{% generation %}{{ message['content'] + eos_token }}{% endgeneration %}{{ '' }}"


def conversations(words):
    """Returns lines of conversations of different lengths, some with a system message."""
    numbers = random.Random(7)
    for _ in range(60):
        roles = ["system"] * numbers.randint(0, 1) + ["user", "assistant"] * numbers.randint(1, 3)
        yield json.dumps({"messages": [{"role": role, "content": " ".join(numbers.choices(words, k=numbers.randint(1, 9)))}
                                       for role in roles]})


def labels_of(tokenizer, messages):
    """Returns the tokens of a conversation and their labels."""
    text = tokenizer.apply_chat_template(messages, tokenize=False)
    encoded = tokenizer.apply_chat_template(messages, tokenize=True, return_dict=True,
                                            tokenizer_kwargs={"return_offsets_mapping": True})
    spans = []
    for i, message in enumerate(messages):
        if message["role"] != "assistant":
            continue
        before = tokenizer.apply_chat_template(messages[:i], tokenize=False, add_generation_prompt=True)
        if not text.startswith(before + message["content"]):
            sys.exit(f"check_chat: the template does not write contents as they are: {text!r}")
        end = text.index(tokenizer.eos_token, len(before) + len(message["content"]))
        spans.append((len(before), end + len(tokenizer.eos_token)))
    ids = encoded["input_ids"]
    labels = [token if any(a < end and b > begin for begin, end in spans) else -100
              for token, (a, b) in zip(ids, encoded["offset_mapping"])]
    return ids, [-100] + labels[1:]


def loss_of_trl(model, tokenizer, chats):
    """Returns trl's mean loss per label, and the number of labels."""
    texts = [tokenizer.apply_chat_template(messages, tokenize=False) for messages in chats]
    tokenizer.chat_template = tokenizer.chat_template.replace(ANSWER, MARKED)
    if texts != [tokenizer.apply_chat_template(messages, tokenize=False) for messages in chats] or MARKED not in tokenizer.chat_template:
        sys.exit("check_chat: the template is not tests/golden/chat/zephyr.jinja")
    datasets.disable_progress_bars()
    data = datasets.Dataset.from_list([{"messages": messages} for messages in chats])
    loss = count = 0
    with tempfile.TemporaryDirectory() as folder:
        config = trl.SFTConfig(output_dir=folder, max_length=None, assistant_only_loss=True, report_to="none", use_cpu=True, bf16=False,
                               disable_tqdm=True, per_device_eval_batch_size=4)
        trainer = trl.SFTTrainer(model=model, args=config, train_dataset=data, eval_dataset=data, processing_class=tokenizer)
        model.eval()
        for batch in trainer.get_eval_dataloader():
            targets = (batch["labels"][:, 1:] != -100).sum().item()
            with torch.no_grad():
                loss += trainer.compute_loss(model, batch).item() * targets
            count += targets
    return loss / count, count


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?")
    parser.add_argument("--write", type=Path)
    parser.add_argument("--text", type=Path)
    parser.add_argument("--chat", type=Path)
    parser.add_argument("--expect", type=Path)
    parser.add_argument("--tolerance", type=float, default=1e-4)
    given = parser.parse_args()
    if given.write:
        given.write.write_text("\n".join(conversations(given.text.read_text().split())) + "\n")
        return
    model, tokenizer = load_model(given.folder), load_tokenizer(given.folder)
    loss = count = 0
    kept = []
    for line in given.chat.read_text().splitlines():
        messages = json.loads(line)["messages"]
        ids, labels = labels_of(tokenizer, messages)
        while len(ids) > model.config.max_position_embeddings and len(messages) > 3:
            messages = messages[:-2]  # a long conversation loses its last question and answer
            ids, labels = labels_of(tokenizer, messages)
        if len(ids) > model.config.max_position_embeddings:
            continue
        kept.append(messages)
        targets = sum(label != -100 for label in labels)
        with torch.no_grad():
            mean = model(input_ids=torch.tensor([ids]), labels=torch.tensor([labels])).loss.item()
        loss += mean * targets
        count += targets
    expected = json.loads(given.expect.read_text())
    found = {f"transformers {transformers.__version__}": (loss / count, count), f"trl {trl.__version__}": loss_of_trl(model, tokenizer, kept)}
    for name, (mean, labels) in found.items():
        print(f"{name}: loss {mean:.7f} on {labels} tokens; ingot: {expected['loss']:.7f} on {expected['tokens']}")
    if any(expected["tokens"] != labels or abs(expected["loss"] - mean) > given.tolerance for mean, labels in found.values()):
        sys.exit(f"check_chat: {given.folder}: the losses differ")


if __name__ == "__main__":
    main()
