#!/usr/bin/env python3
"""Compares `ingot eval --tasks` with lm-evaluation-harness on a checkpoint that Ingot wrote.

  python tools/check_tasks.py CHECKPOINT --ingot build/release/ingot

Writes two tasks: questions with three one-word choices, and sentences whose last word is predicted. The harness's `hf` model
computes the log-likelihoods of the same requests in float32; if the package lm_eval is not installed, transformers does, by the
same rule for the tokens of context and continuation, and the last line names what was used. Of both tasks the accuracies and
standard errors must be equal, and the mean log-likelihood of the sentences must agree within 1e-5. So must that of every choice of the
first questions; each is a sentence of its own for Ingot, in a file of one record.

Needs: pip install -r tools/requirements-oracle.txt, and lm_eval==0.4.13 for the harness. The script does not use the network.
"""
import argparse
import json
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRANSFORMERS_OFFLINE"] = "1"

import torch  # noqa: E402
import transformers  # noqa: E402

TOLERANCE = 1e-5
WORDS = ("the loss of a step is in train and text model data weights rank each file to be run with that caf\u00e9 token "
         "memory value for on one not from by").split()


def make_tasks():
    """Returns questions (context, choices, answer) and sentences (context, last word)."""
    draw = random.Random(5)

    def words(low, high):
        return " ".join(draw.choice(WORDS) for _ in range(draw.randint(low, high)))

    questions = [(words(3, 12), draw.sample(WORDS, 3), draw.randrange(3)) for _ in range(60)]
    return questions, [(words(2, 20), draw.choice(WORDS)) for _ in range(60)]


def harness_scores(folder, requests):
    from lm_eval.api.instance import Instance
    from lm_eval.models.huggingface import HFLM

    model = HFLM(pretrained=str(folder), dtype="float32", device="cpu", batch_size=4,
                 trust_remote_code=(folder / "modeling_ingot.py").is_file())
    return model.loglikelihood([Instance(request_type="loglikelihood", doc={}, arguments=request, idx=i)
                                for i, request in enumerate(requests)], disable_tqdm=True)


@torch.no_grad()
def transformers_scores(folder, requests):
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, trust_remote_code=(folder / "modeling_ingot.py").is_file()).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    scores = []
    for context, continuation in requests:
        whole, first = tokenizer(context + continuation)["input_ids"], len(tokenizer(context)["input_ids"])
        kept = whole[-(model.config.max_position_embeddings + 1):]
        first -= len(whole) - len(kept)
        logits = model(torch.tensor([kept[:-1]]), use_cache=False).logits[0, first - 1:].log_softmax(-1)
        target = torch.tensor(kept[first:])
        scores.append((logits.gather(1, target[:, None]).sum().item(), bool((logits.argmax(-1) == target).all())))
    return scores


def scores_of(folder, requests):
    try:
        import lm_eval
    except ImportError:
        return transformers_scores(folder, requests), f"transformers {transformers.__version__}, for want of lm_eval"
    return harness_scores(folder, requests), f"lm_eval {lm_eval.__version__ if hasattr(lm_eval, '__version__') else ''}"


def write_lines(path, records):
    path.write_text("".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records), encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--ingot", required=True)
    arguments = parser.parse_args()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    questions, sentences = make_tasks()
    choices = [(context, " " + choice) for context, options, _ in questions for choice in options]
    scores, used = scores_of(arguments.checkpoint, choices + [(context, " " + word) for context, word in sentences])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_lines(folder / "questions.jsonl",
                    [{"question_stem": context, "choices": {"text": options, "label": ["A", "B", "C"]},
                      "answerKey": "ABC"[answer]} for context, options, answer in questions])
        write_lines(folder / "sentences.jsonl", [{"text": f"{context} {word}"} for context, word in sentences])
        for i, (context, word) in enumerate(choices[:12]):
            write_lines(folder / f"choice{i}.jsonl", [{"text": context + word}])
        said = subprocess.run([arguments.ingot, "eval", arguments.checkpoint, "--quiet", "--json", "--compute", "f32", "--tasks",
                               *sorted(folder.glob("*.jsonl"))], check=True, stdout=subprocess.PIPE, text=True).stdout
    ingot = json.loads(said)["tasks"]

    def chosen(size):
        right = []
        for i, (_, options, answer) in enumerate(questions):
            own = [scores[3 * i + k][0] / size(options[k]) for k in range(3)]
            right.append(float(own.index(max(own)) == answer))
        return statistics.mean(right), statistics.stdev(right) / math.sqrt(len(right))

    last = scores[len(choices):]
    greedy = [float(is_greedy) for _, is_greedy in last]
    pairs = {"questions acc": (ingot["questions"]["acc"], chosen(lambda _: 1)[0]),
             "questions stderr": (ingot["questions"]["stderr"], chosen(lambda _: 1)[1]),
             "questions acc_norm": (ingot["questions"]["acc_norm"], chosen(len)[0]),
             "sentences acc": (ingot["sentences"]["acc"], statistics.mean(greedy)),
             "sentences log-likelihood": (-math.log(ingot["sentences"]["perplexity"]), statistics.mean(s for s, _ in last))}
    for i in range(12):
        pairs[f"choice {i}"] = (-math.log(ingot[f"choice{i}"]["perplexity"]), scores[i][0])
    for what, (own, other) in pairs.items():
        if not abs(own - other) <= TOLERANCE:
            sys.exit(f"check_tasks: {what} is {own} in Ingot, {other} by {used}; at most {TOLERANCE:g} apart")
    worst = max(abs(own - other) for own, other in pairs.values())
    print(f"check_tasks: {len(scores)} requests, {len(pairs)} numbers within {worst:.1e} of {used}")


if __name__ == "__main__":
    main()
