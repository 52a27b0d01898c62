#!/usr/bin/env python3
"""Asks `ingot api` through the clients that people use: OpenAI's package and lm-evaluation-harness.

  python tools/check_api.py CHECKPOINT --ingot build/release/ingot

The harness evaluates its own definitions of eight tasks, on records that tools/check_tasks.py makes, with its `hf` model and
with its `local-completions` model on the server: log-likelihoods must agree within 1e-5. The `openai` package asks for texts,
streams, several choices, scores, chats if the model has a template, and sees its own classes of errors.

Needs: pip install -r tools/requirements-oracle.txt, lm_eval[api]==0.4.13 and openai. The script does not use the network.
"""
import argparse
import contextlib
import json
import logging
import re
import subprocess
import sys
from pathlib import Path

import check_tasks  # it switches the network off
import lm_eval
import openai
from lm_eval.models.huggingface import HFLM
from lm_eval.models.openai_completions import LocalCompletionsAPI


@contextlib.contextmanager
def served(program, checkpoint, *options):
    """Yields the address of a server."""
    command = [program, "api", checkpoint, "--port", "0", "--compute", "f32", "--name", "tiny", *options]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        found = re.search(r"at (http://\S+):", server.stdout.readline())
        if not found:
            sys.exit("check_api: the server did not start")
        yield found.group(1)
    finally:
        server.terminate()
        if server.wait(timeout=60) != 0:
            sys.exit("check_api: the server did not end with exit code 0")


def require(is_true, what):
    if not is_true:
        sys.exit(f"check_api: {what}")


def refused(kind, call):
    try:
        call()
    except kind as error:
        return error
    sys.exit(f"check_api: no {kind.__name__}")


def joined(tokens):
    """Returns the text of tokens; bytes that are no characters are left out."""
    parts = (bytes.fromhex(token[6:].replace("\\x", "")) if token.startswith("bytes:") else token.encode() for token in tokens)
    return b"".join(parts).decode(errors="ignore")


def check_texts(client):
    ask = client.completions.create
    require([model.id for model in client.models.list()] == ["tiny"], "models.list() has not the model")
    # A text that does not end at once.
    seed, again = next((seed, text) for seed in range(100)
                       if len((text := ask(model="tiny", prompt="In the", max_tokens=30, seed=seed)).choices[0].text) > 20)
    whole = ask(model="tiny", prompt="In the", max_tokens=30, seed=seed, logprobs=3, echo=True)
    choice = whole.choices[0]
    require(choice.text == "In the" + again.choices[0].text, "echo changes the text")
    tokens = choice.logprobs.tokens[:-1] if choice.finish_reason == "stop" else choice.logprobs.tokens  # without the end
    require(joined(tokens) == choice.text.replace("\ufffd", ""), "the tokens are not the text")
    require(choice.logprobs.token_logprobs[0] is None and all(x <= 0 for x in choice.logprobs.token_logprobs[1:]), "log-probabilities")
    for token, own, top in zip(choice.logprobs.tokens[1:], choice.logprobs.token_logprobs[1:], choice.logprobs.top_logprobs[1:]):
        require(top[token] == own and len(top) in (3, 4), "a token is not among its alternatives")
    require(whole.usage.total_tokens == len(choice.logprobs.tokens), "usage is not the number of tokens")
    chunks = list(ask(model="tiny", prompt="In the", max_tokens=30, seed=seed, stream=True, stream_options={"include_usage": True}))
    require("".join(c.choices[0].text for c in chunks if c.choices) == again.choices[0].text, "the stream is not the text")
    require(chunks[-1].usage == again.usage, "the stream's usage")
    several = ask(model="tiny", prompt=["In the", "the"], max_tokens=8, n=3, seed=seed).choices
    require([c.index for c in several] == list(range(6)) and again.choices[0].text.startswith(several[0].text.rstrip("\ufffd")), "n")
    word = again.choices[0].text[3:6]
    stopped = ask(model="tiny", prompt="In the", max_tokens=30, seed=seed, stop=[word]).choices[0]
    require(stopped.text == again.choices[0].text.split(word)[0] and stopped.finish_reason == "stop", "stop")
    error = refused(openai.BadRequestError, lambda: ask(model="tiny", prompt="x", temperature=-1))
    require(error.param == "temperature" and "from 0 to 100" in str(error), "an error names its key")
    refused(openai.NotFoundError, lambda: client.embeddings.create(model="tiny", input="x"))


def check_chat(client):
    ask = client.chat.completions.create
    messages = [{"role": "user", "content": "Who was it?"}]
    whole = ask(model="tiny", messages=messages, max_tokens=12, seed=5, logprobs=True, top_logprobs=2)
    require(whole.choices[0].message.role == "assistant", "the role of an answer")
    require(len(whole.choices[0].logprobs.content[0].top_logprobs) == 2, "alternatives of a token")
    stream = ask(model="tiny", messages=messages, max_tokens=12, seed=5, stream=True)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in stream)
    require(text == whole.choices[0].message.content, "a chat's stream is not its text")


def check_scores(url, checkpoint):
    config = json.loads((checkpoint / "config.json").read_text())
    context = config.get("max_position_embeddings") or config["n_positions"]
    tasks = check_tasks.make_tasks()
    # Of a long text, local-completions leaves room for a token to be generated, and sends the one after the last that `hf` reads.
    local = HFLM(pretrained=str(checkpoint), dtype="float32", device="cpu", batch_size=8, softmax_dtype="float64", max_length=context - 2,
                 trust_remote_code=(checkpoint / "modeling_ingot.py").is_file())
    remote = LocalCompletionsAPI(base_url=f"{url}/completions", model="tiny", tokenizer=str(checkpoint), tokenizer_backend="huggingface",
                                 batch_size=8, max_length=context, num_concurrent=1)
    worst, count = 0.0, 0
    expected, got = (check_tasks.harness_results(model, tasks, 0)["samples"] for model in (local, remote))
    for task, samples in expected.items():
        mine = {sample["doc_id"]: sample for sample in got[task]}
        for sample in samples:
            for (likelihood, is_greedy), (own, own_greedy) in zip((r[0] for r in sample["resps"]), (r[0] for r in mine[sample["doc_id"]]["resps"]),
                                                                  strict=True):
                require(abs(likelihood - own) <= check_tasks.TOLERANCE and is_greedy == own_greedy,
                        f"{task}, record {sample['doc_id']}: {own} by the server, {likelihood} in the harness")
                worst, count = max(worst, abs(likelihood - own)), count + 1
    print(f"check_api: {count} log-likelihoods of {len(expected)} tasks within {worst:.1e} of lm_eval {lm_eval.__version__}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--ingot", required=True)
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    with served(arguments.ingot, arguments.checkpoint, "--chat-template", "zephyr", "--api-key", "secret") as url:
        refused(openai.AuthenticationError, lambda: openai.OpenAI(base_url=url, api_key="other", max_retries=0).models.list())
        client = openai.OpenAI(base_url=url, api_key="secret", max_retries=0)
        check_texts(client)
        check_chat(client)
        print(f"check_api: texts, streams, chats and errors as the openai package {openai.__version__} knows them")
    with served(arguments.ingot, arguments.checkpoint) as url:
        check_scores(url, arguments.checkpoint)


if __name__ == "__main__":
    main()
