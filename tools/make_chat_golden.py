#!/usr/bin/env python3
"""Renders conversations with the published chat templates in tests/golden/chat, as transformers does, into
rendered.json there, which ChatTemplate.RendersAsTransformers compares with what Ingot renders.

  tools/make_chat_golden.py           writes the file
  tools/make_chat_golden.py --check   fails if the installed transformers renders another text

null stands for a conversation that the template refuses. "prompts" holds the last conversation, a question, with what the
template puts before the answer. Needs: pip install -r tools/requirements-oracle.txt
"""

import json
import sys
from pathlib import Path

import jinja2
import tokenizers
import transformers

FOLDER = Path(__file__).resolve().parent.parent / "tests/golden/chat"
BOS, EOS = "<s>", "</s>"


def message(role, content):
    return {"role": role, "content": content}


CONVERSATIONS = [
    [message("user", "Hello"), message("assistant", "Hi there")],
    [message("system", "Be brief."), message("user", "Hello"), message("assistant", "Hi")],
    [message("system", " Be brief. \n"), message("user", "  Who?\n"), message("assistant", "\n Me \t"),
     message("user", "\u3000Sure?\u00a0"), message("assistant", "\u2028Yes.\x1f \u0085")],
    [message("system", "Rules"), message("user", " \n "), message("assistant", "")],
    [message("system", ""), message("user", ""), message("assistant", "{{ bos_token }} {eos} <|im_end|> [/INST]")],
    [message("user", "Größe? 你好 🙂"), message("assistant", "<think>\n2 + 2\n</think>\n\nVier."), message("user", "Danke")],
    [message("user", "a"), message("assistant", "</think></think>b"), message("user", "</think>c")],
    [message("assistant", "I begin."), message("user", "So?"), message("assistant", "So.")],
    [message("user", "one"), message("user", "two"), message("assistant", "three")],
    [message("user", "a"), message("system", "Now in French."), message("assistant", "b")],
    [message("user", "only a question")],
]


def rendered(tokenizer, template, conversation, is_prompt=False):
    try:
        return tokenizer.apply_chat_template(conversation, chat_template=template, tokenize=False, add_generation_prompt=is_prompt)
    except jinja2.exceptions.TemplateError:
        return None


def main():
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizers.Tokenizer(tokenizers.models.BPE()), bos_token=BOS, eos_token=EOS)
    templates = {path.name: path.read_bytes().decode() for path in sorted(FOLDER.glob("*.jinja"))}
    golden = {"bos": BOS, "eos": EOS, "conversations": CONVERSATIONS,
              "rendered": {name: [rendered(tokenizer, text, c) for c in CONVERSATIONS] for name, text in templates.items()},
              "prompts": {name: rendered(tokenizer, text, CONVERSATIONS[-1], True) for name, text in templates.items()}}
    file = FOLDER / "rendered.json"
    text = json.dumps(golden, indent=1) + "\n"
    if sys.argv[1:] != ["--check"]:
        file.write_text(text)
    elif json.loads(file.read_text()) != golden:
        sys.exit(f"transformers {transformers.__version__} renders another text than {file} has")
    print(f"{len(templates)} templates, {len(CONVERSATIONS)} conversations each")


if __name__ == "__main__":
    main()
