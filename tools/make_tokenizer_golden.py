#!/usr/bin/env python3
"""Writes tests/golden/tokenizer: the first ranks of three published vocabularies, and tiktoken's encodings with them.

    pip install tiktoken==0.14.0
    python tools/make_tokenizer_golden.py FOLDER_WITH_r50k_base.tiktoken_AND_SO_ON

The first ranks of a BPE table are a BPE table again, so the fixtures can be small. The texts are part of this
script: corner cases of the patterns, many scripts, and random strings of the characters that patterns distinguish.
"""
import json
import pathlib
import random
import sys

import tiktoken
import tiktoken_ext.openai_public as public

RANKS = 2000
OUT = pathlib.Path(__file__).resolve().parent.parent / "tests/golden/tokenizer"

WRITTEN = [
    "", " ", "  ", "a", "\n", "\r\n", "Hello, world!", "  two  spaces  ", "tail \n  ", "tail\n\n  \t", "x \n y\r\n\r\nz",
    "don't I'll WE'VE you'Re he'D it's'S DON'T o'clock ''s 'll've", "it\u2019s 'ſ 'ſt a'ſ", "123 1234 12345678 ٣٤٥٦ ⅷ ½²",
    "snake_case camelCase HTTPServer XMLHttpRequest2 __init__", "int main() {\n\treturn a[i++] /*x*/ // y\n}\n\n",
    "https://example.org/a/b?c=d&e=f#g\n", "a/b/\n/c//\r\n", "naïve café Ünïcödé ß ẞ ﬁ", "e\u0301 a\u0308\u0323 \u0301x \u0301 \u0301A",
    "Ǆ ǅ ǆ ǅungla Ǆabc ʰʱ ªº", "中文字符，混排 English 和 123。", "日本語のテキスト、カタカナ・ひらがな。", "한국어 문장입니다.",
    "Русский текст, ещё СЛОВО", "العربية نص ١٢٣", "हिन्दी में पाठ", "ภาษาไทยไม่มีวรรค", "ქართული ᲥᲐᲠᲗᲣᲚᲘ",
    "👍🏽 👨‍👩‍👧‍👦 🇩🇪 ❤️", "a\u00a0b\u2003c\u3000d\u0085e\u180ef\u200bg\ufeffh", "\u2028\u2029 \u1680x", "\x00\x01\x7f\x1b[0m",
    "<|endoftext|>", "\U000e0101\U0010ffff\ud7ff\ue000", "𝒜𝒷𝟙 𐐀𐐨", "字Aa Aa字 aA字B", "AB字'sX", "\u0301'S", "a" * 70, "ab" * 60,
    " " * 40 + "x", "\n" * 20, " \n" * 10 + "end", "=" * 33, "0" * 50,
]
POOL = (list("aabesxtZDMLVE  \n\r\t''/.-_19") +
        list("\u017f\u00e9\u00c9\u01c5\u02b0\u4e2d\u0301\u0663\u00b2\u2167\u00a0\u3000\u180e\u0085\u200d\u20ac\U0001f44d\U0001d49c"))


def texts():
    rng = random.Random(20241121)
    for text in WRITTEN:
        yield text
    for _ in range(160):
        yield "".join(rng.choice(POOL) for _ in range(rng.randint(1, 24)))


def main(folder):
    OUT.mkdir(parents=True, exist_ok=True)
    patterns = {"r50k_base": public.r50k_pat_str}
    for name, constructor in (("cl100k_base", public.cl100k_base), ("o200k_base", public.o200k_base)):
        public.load_tiktoken_bpe = lambda *args, **kwargs: {}
        patterns[name] = constructor()["pat_str"]
    rows = [{"text": text} for text in texts()]
    for name, pattern in patterns.items():
        lines = (folder / f"{name}.tiktoken").read_text().splitlines()[:RANKS]
        short = name.split("_")[0] + "_cut.tiktoken"
        (OUT / short).write_text("\n".join(lines) + "\n")
        ranks = tiktoken.load.load_tiktoken_bpe(str(OUT / short))
        assert sorted(ranks.values()) == list(range(RANKS)) and sum(len(t) == 1 for t in ranks) == 256
        encoding = tiktoken.Encoding(name, pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
        for row in rows:
            row[name.split("_")[0]] = encoding.encode_ordinary(row["text"])
    with open(OUT / "encodings.jsonl", "w", encoding="utf-8") as out:
        for row in rows:
            out.write(json.dumps(row, separators=(",", ":")) + "\n")


main(pathlib.Path(sys.argv[1]))
