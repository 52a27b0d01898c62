#!/usr/bin/env python3
"""Renders conversations with the chat template of a model that Ingot itself does not know, for `ingot train --data`.

  python3 examples/data/render_chat.py chat.jsonl --model FOLDER --out rendered.jsonl

FOLDER has chat_template.jinja, or chat_template in tokenizer_config.json. Each line of the output is one conversation:
{"parts": [{"text": ..., "is_written": ..., "is_target": ...}, ...]}. Written parts are contents, in which Ingot finds no
special token; target parts are the assistant's turns, up to and with the token that ends each. The template must render
a conversation's first messages as the beginning of the whole, or the script ends with the number of the line.

Needs: pip install jinja2
"""

import argparse
import datetime
import json
import os
import re
import sys
from pathlib import Path

try:
    import jinja2
    from jinja2.sandbox import ImmutableSandboxedEnvironment
except ImportError:
    sys.exit("render_chat.py needs jinja2: pip install jinja2")

ROLES = {"system": "system", "user": "user", "human": "user", "assistant": "assistant", "gpt": "assistant",
         "chatgpt": "assistant"}


def messages_of(line):
    """Returns the messages of a line in any of the shapes that Ingot reads."""
    if "messages" in line:
        return [{"role": ROLES[m["role"]], "content": m["content"]} for m in line["messages"]]
    if "conversations" in line:
        return [{"role": ROLES[m["from"]], "content": m["value"]} for m in line["conversations"]]
    question = line["instruction"] + ("\n\n" + line["input"] if line.get("input") else "")
    return [{"role": "user", "content": question}, {"role": "assistant", "content": line["output"]}]


def refuse(text):
    raise jinja2.exceptions.TemplateError(text)


def load_template(folder):
    """Returns the compiled template and the special tokens that it may name."""
    config_file, jinja = folder / "tokenizer_config.json", folder / "chat_template.jinja"
    config = json.loads(config_file.read_text(encoding="utf-8")) if config_file.is_file() else {}
    text = jinja.read_text(encoding="utf-8") if jinja.is_file() else config.get("chat_template")
    if isinstance(text, list):
        text = next((item["template"] for item in text if item["name"] == "default"), None)
    if not text:
        sys.exit(f"{folder}: there is no chat template")
    # The marks of the assistant's turns change no text.
    text = re.sub(r"(\{%[-+]?\s*)endgeneration(\s*[-+]?%\})", r"\1endif\2", text)
    text = re.sub(r"(\{%[-+]?\s*)generation(\s*[-+]?%\})", r"\1if true\2", text)
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
    environment.filters["tojson"] = lambda value, indent=None: json.dumps(value, ensure_ascii=False, indent=indent)
    environment.globals["raise_exception"] = refuse
    environment.globals["strftime_now"] = lambda form: datetime.datetime.now().strftime(form)
    tokens = {name: value["content"] if isinstance(value, dict) else value
              for name, value in config.items() if name.endswith("_token") and value}
    return environment.from_string(text), tokens


def parts_of(messages, render):
    """Returns the parts of a rendered conversation."""
    whole = render(messages)
    targets, written, position = [], [], 0
    for i, message in enumerate(messages):
        content = message["content"].strip()
        found = whole.find(content, position) if content else -1
        if found >= 0:
            written.append((found, found + len(content)))
            position = found + len(content)
        if message["role"] == "assistant":
            before, after = render(messages[:i], add_generation_prompt=True) if i else "", render(messages[:i + 1])
            if not whole.startswith(after):
                raise ValueError("the template renders an earlier turn otherwise once later ones follow")
            begin = len(os.path.commonprefix([before, after])) if i else max(found, 0)
            targets.append((begin, len(after.rstrip()) if after.rstrip() != before.rstrip() else len(after)))
            position = max(position, len(after.rstrip()))
    cuts = sorted({0, len(whole)} | {edge for span in targets + written for edge in span})
    inside = lambda spans, at: any(begin <= at < end for begin, end in spans)
    return [{"text": whole[a:b], "is_written": inside(written, a), "is_target": inside(targets, a)}
            for a, b in zip(cuts, cuts[1:])]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path, help="conversations, one JSON object per line")
    parser.add_argument("--model", type=Path, required=True, help="folder with the chat template")
    parser.add_argument("--out", type=Path, required=True, help="the file to write")
    given = parser.parse_args()
    template, tokens = load_template(given.model)

    def render(messages, add_generation_prompt=False):
        return template.render(messages=messages, add_generation_prompt=add_generation_prompt, **tokens)

    partial = given.out.with_name(given.out.name + ".part")
    count = 0
    with given.file.open(encoding="utf-8") as lines, partial.open("w", encoding="utf-8") as out:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                parts = parts_of(messages_of(json.loads(line)), render)
            except (jinja2.exceptions.TemplateError, ValueError, KeyError, TypeError) as fault:
                partial.unlink()
                sys.exit(f"{given.file}:{number}: {type(fault).__name__}: {fault}")
            out.write(json.dumps({"parts": parts}, ensure_ascii=False) + "\n")
            count += 1
    partial.replace(given.out)
    print(f"{given.out}: {count} conversations")


if __name__ == "__main__":
    main()
