#!/usr/bin/env python3
"""Checks that the Python library `tokenizers` reads what Ingot writes and encodes as Ingot does.

    pip install tokenizers==0.23.3
    python tools/check_tokenizer_json.py build/release/ingot TEXT [TOKENIZER ...]

TEXT is a UTF-8 file. The script trains a byte-level BPE of each pattern on it and imports each TOKENIZER
(.tiktoken, ...). The fixtures of tests/golden/tokenizer serve as further texts.
"""
import json
import pathlib
import struct
import subprocess
import sys
import tempfile

from tokenizers import Tokenizer

GOLDEN = pathlib.Path(__file__).resolve().parent.parent / "tests/golden/tokenizer/encodings.jsonl"


def main(ingot, text_file, *tokenizers):
    texts = [json.loads(line)["text"] for line in open(GOLDEN, encoding="utf-8")]
    texts = texts[:60]
    texts.append(pathlib.Path(text_file).read_bytes().decode())
    # Ingot treats special tokens in a text as text, the library as tokens.
    texts = [text for text in texts if "<|endoftext|>" not in text]
    folder = pathlib.Path(tempfile.mkdtemp())

    def run(*args):
        subprocess.run([ingot, "tokenizer", *map(str, args)], check=True, stdout=subprocess.DEVNULL)

    files = {}
    for pattern in ("gpt2", "cl100k", "o200k", "llama3", "qwen2"):
        files[f"trained {pattern}"] = folder / f"{pattern}.json"
        run("train", "--data", text_file, "--vocab-size", "4096", "--pattern", pattern, "--out", folder / f"{pattern}.json")
    for i, path in enumerate(tokenizers):
        files[path] = folder / f"imported{i}.json"
        run("import", path, "--out", folder / f"imported{i}.json")
    failures = 0
    for name, path in files.items():
        library = Tokenizer.from_file(str(path))
        differing = []
        for text in texts:
            (folder / "text").write_bytes(text.encode())
            run("encode", "--tokenizer", path, "--in", folder / "text", "--out", folder / "ids")
            data = (folder / "ids").read_bytes()
            ids = list(struct.unpack(f"<{len(data) // 4}I", data))
            theirs = library.encode(text, add_special_tokens=False).ids
            if ids != theirs or library.decode(ids, skip_special_tokens=False) != text:
                differing.append(text)
        failures += len(differing)
        print(f"{name}: {len(texts) - len(differing)} of {len(texts)} texts equal", *map(ascii, differing[:3]))
    sys.exit(1 if failures else 0)


main(*sys.argv[1:])
