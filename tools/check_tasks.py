#!/usr/bin/env python3
"""Compares `ingot eval --tasks` with lm-evaluation-harness on a checkpoint that Ingot wrote.

  python tools/check_tasks.py CHECKPOINT --ingot build/release/ingot

Writes records of words in the shapes of eight data sets. The harness evaluates its own definitions of these tasks on the
records, with its `hf` model in float32, without examples and with one. Of every record the log-likelihoods of all options must
agree within 1e-5, and the accuracies, standard errors and perplexities too. CORE's three shapes are compared with nanochat's
rules, which are written down here again.

Needs: pip install -r tools/requirements-oracle.txt, and lm_eval==0.4.13. The script does not use the network.
"""
import argparse
import json
import logging
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

for switch in "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE":
    os.environ[switch] = "1"

import datasets  # noqa: E402
import lm_eval  # noqa: E402
import torch  # noqa: E402
from lm_eval.models.huggingface import HFLM  # noqa: E402
from lm_eval.tasks import TaskManager  # noqa: E402
from lm_eval.tasks._yaml_loader import load_yaml  # noqa: E402

TOLERANCE = 1e-5
RECORDS = 20
WORDS = ("the loss of a step is in train and text model data weights rank each file to be run with that caf\u00e9 token "
         "memory value for on one not from by").split()
METRICS = [{"metric": metric, "aggregation": "mean", "higher_is_better": True} for metric in ("acc", "acc_norm", "acc_bytes")]


def make_tasks():
    """Returns the records of tasks by the harness's names; the first record of each is the example."""
    draw = random.Random(5)

    def words(low=3, high=12):
        return " ".join(draw.choice(WORDS) for _ in range(draw.randint(low, high)))

    def labelled(n):
        return {"text": [words(1, 4) for _ in range(n)], "label": list("ABCDE"[:n])}

    def some(make):
        return [make() for _ in range(RECORDS + 1)]

    return {
        "hellaswag": some(lambda: {"activity_label": words(1, 2), "ctx_a": words() + " [header] the  end.", "ctx_b": words(1, 3),
                                   "endings": [words(2, 6) + draw.choice(["", " [title] run"]) for _ in range(4)],
                                   "label": str(draw.randrange(4))}),
        "arc_easy": some(lambda: {"question": words(), "choices": labelled(4), "answerKey": draw.choice("ABCD")}),
        "openbookqa": some(lambda: {"question_stem": words(), "choices": labelled(3), "answerKey": draw.choice("ABC")}),
        "piqa": some(lambda: {"goal": words(), "sol1": words(), "sol2": words(), "label": draw.randrange(2)}),
        "winogrande": some(lambda: {"sentence": words() + " _ " + words(2, 4), "option1": words(1, 2), "option2": words(1, 2),
                                    "answer": draw.choice("12")}),
        "boolq": some(lambda: {"passage": words(), "question": words(), "label": draw.randrange(2)}),
        "lambada_openai": some(lambda: {"text": words()}),
        "mmlu_high_school_physics": some(lambda: {"question": " " + words(), "subject": "high_school_physics",
                                                  "choices": [words(1, 4) for _ in range(4)], "answer": draw.randrange(4)}),
    }


def make_core_tasks(tasks):
    """Returns records of CORE made of the others' texts, with their answers."""
    return {"choice": [{"query": r["question_stem"], "choices": r["choices"]["text"], "gold": "ABC".index(r["answerKey"])}
                       for r in tasks["openbookqa"]],
            "schema": [{"context_options": [r["sol1"] + " x", r["sol2"] + " y"], "continuation": r["goal"], "gold": r["label"]}
                       for r in tasks["piqa"]],
            "language": [{"context": r["sol1"] + " ", "continuation": r["goal"]} for r in tasks["piqa"]]}


@torch.no_grad()
def core_scores(model, record):
    """Returns a pair for each option: the log-likelihoods of its scored tokens, and if each of them is the likeliest token."""
    def encoded(text):
        return [model.prefix_token_id, *model.tokenizer.encode(text, add_special_tokens=False)]

    def common(texts):
        return next((i for i, column in enumerate(zip(*texts)) if len(set(column)) > 1), min(map(len, texts)))

    if "query" in record:
        texts = [encoded(f"{record['query']} {choice}") for choice in record["choices"]]
        firsts = [common(texts)] * len(texts)
    elif "context_options" in record:
        texts = [encoded(f"{context} {record['continuation']}") for context in record["context_options"]]
        firsts = [len(text) - common([text[::-1] for text in texts]) for text in texts]
    else:
        texts = [encoded(f"{record['context'].strip()} {record['continuation']}")]
        firsts = [common([*texts, encoded(record["context"].strip())])]
    for text, first in zip(texts, firsts):
        rows = model._model_call(torch.tensor([text[:-1]]))[0, first - 1:].double().log_softmax(-1)
        targets = torch.tensor(text[first:])
        yield rows.gather(1, targets[:, None])[:, 0], bool((rows.argmax(-1) == targets).all())


def harness_results(model, tasks, shots):
    index = TaskManager().task_index

    def config(name, records):
        parts = {"train": records[:1], "dev": records[:1], "validation": records[1:], "test": records[1:]}
        found = datasets.DatasetDict({part: datasets.Dataset.from_list(own) for part, own in parts.items()})
        own = load_yaml(index[name].yaml_path) | {"task": name, "custom_dataset": lambda **_: found}
        if name == "arc_easy":
            own["metric_list"] = METRICS
        if name != "mmlu_high_school_physics":
            own |= {"training_split": "train", "fewshot_split": "train"}
        return own

    return lm_eval.simple_evaluate(model, tasks=[config(*task) for task in tasks.items()], num_fewshot=shots, bootstrap_iters=1000)


def ingot_results(program, checkpoint, tasks, shots):
    results, samples = {}, {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for task, records in tasks.items():
            for file, own in (f"{task}.jsonl", records[1:]), (f"{task}.example", records[:1]):
                (folder / file).write_text("".join(json.dumps(record) + "\n" for record in own), encoding="utf-8")
        command = [program, "eval", checkpoint, "--quiet", "--json", "--compute", "f32", "--samples", folder / "samples"]
        for task in tasks:
            examples = ["--shots", str(shots), "--shots-from", folder / f"{task}.example"] if shots else []
            said = subprocess.run([*command, *examples, "--tasks", folder / f"{task}.jsonl"], check=True, stdout=subprocess.PIPE,
                                  text=True).stdout
            results |= json.loads(said)["tasks"]
            samples[task] = [json.loads(line) for line in (folder / "samples").read_text(encoding="utf-8").splitlines()]
    return results, samples


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--ingot", required=True)
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    tasks = make_tasks()
    model = HFLM(pretrained=str(arguments.checkpoint), dtype="float32", device="cpu", batch_size=8, softmax_dtype="float64",
                 trust_remote_code=(arguments.checkpoint / "modeling_ingot.py").is_file())
    worst, likelihoods = 0.0, 0

    def compare(what, own, other):
        nonlocal worst
        if not abs(own - other) <= TOLERANCE:
            sys.exit(f"check_tasks: {what} is {own} in Ingot, {other} in the harness; at most {TOLERANCE:g} apart")
        worst = max(worst, abs(own - other))

    core = make_core_tasks(tasks)
    results, samples = ingot_results(arguments.ingot, arguments.checkpoint, core, 0)
    for task, records in core.items():
        right = 0
        for record, mine in zip(records[1:], samples[task], strict=True):
            scores = list(core_scores(model, record))
            for k, (likelihood, is_greedy) in enumerate(scores):
                compare(f"{task}, {record}, option {k}", mine["log_likelihoods"][k], likelihood.sum().item())
                compare(f"{task}, {record}, option {k}, is_greedy", mine["is_greedy"][k], is_greedy)
                likelihoods += 1
            means = [likelihood.mean().item() for likelihood, _ in scores]
            right += means.index(max(means)) == record["gold"] if "gold" in record else scores[0][1]
        compare(f"{task}, acc", results[task]["acc"], right / RECORDS)
        print(f"check_tasks: {task} of CORE: acc {results[task]['acc']:.3f}, as by nanochat's rules")
    for shots in 0, 1:
        expected = harness_results(model, tasks, shots)
        results, samples = ingot_results(arguments.ingot, arguments.checkpoint, tasks, shots)
        for task, own in results.items():
            known = sorted(expected["samples"][task], key=lambda sample: sample["doc_id"])
            assert len(known) == len(samples[task]) == own["n"] == RECORDS
            for i, (sample, mine) in enumerate(zip(known, samples[task])):
                scores = [response[0] for response in sample["resps"]]
                assert len(scores) == len(mine["log_likelihoods"])
                for k, (likelihood, is_greedy) in enumerate(scores):
                    compare(f"{task}, {shots} shots, record {i}, option {k}", mine["log_likelihoods"][k], likelihood)
                    compare(f"{task}, {shots} shots, record {i}, option {k}, is_greedy", mine["is_greedy"][k], is_greedy)
                    likelihoods += 1
            names = {"acc": "acc", "acc_stderr": "stderr", "acc_norm": "acc_norm", "acc_norm_stderr": "acc_norm_stderr",
                     "acc_bytes": "acc_bytes", "perplexity": "perplexity"}
            for name, ours in names.items():
                if (value := expected["results"][task].get(f"{name},none")) is not None:
                    scale = value if name == "perplexity" else 1
                    compare(f"{task}, {shots} shots, {name}", own[ours] / scale, value / scale)
            accuracies = ", ".join(f"{name} {own[name]:.3f}" for name in ("acc", "acc_norm", "acc_bytes") if own.get(name) is not None)
            print(f"check_tasks: {task}, {shots} shots: {accuracies}, as in the harness")
    print(f"check_tasks: {likelihoods} log-likelihoods and their means within {worst:.1e} of lm_eval {lm_eval.__version__}")


if __name__ == "__main__":
    main()
