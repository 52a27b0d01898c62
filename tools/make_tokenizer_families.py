#!/usr/bin/env python3
"""Writes tokenizer.json files of the kinds that published models have, and the encodings of the library `tokenizers`.

    pip install tokenizers==0.23.3
    python tools/make_tokenizer_families.py OUT [--texts 40] [--seed 1]

The families follow the published structure of each model's tokenizer.json; their vocabularies are small and trained
here. For each family, OUT gets FAMILY.json and FAMILY.jsonl with one row per text: `ids` where special tokens in the text
are ordinary text (the library's encode_special_tokens), `special` where they are found, and `decoded`, the text of `ids`,
unless the library had to write U+FFFD into it.

tests/golden/tokenizer/families was written with the defaults. For a wide comparison, write more texts to another
folder and run build/release/tests/ingot_data_tests --gtest_filter='*TokenizerFamily*' with INGOT_TOKENIZER_FAMILIES=OUT.
"""
import argparse
import json
import pathlib
import random
import unicodedata

from tokenizers import Tokenizer, models, pre_tokenizers, trainers

ROOT = pathlib.Path(__file__).resolve().parent.parent
MARK = "\u2581"
VOCABULARY = 420

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace("{1,3}", "")
TEKKEN = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
          r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
          r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
HAN = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
DEEPSEEK3 = ("[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
             "| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+")

TEXTS = [
    "", " ", "  ", "a", "\n", "\r\n", "Hello, world!", "  two  spaces  ", "tail \n  ", "x \n y\r\n\r\nz", "\ttab\t\ttabs",
    "don't I'll WE'VE you'Re he'D it's'S o'clock ''s", "123 1234 12345678 3.14159 \u0663\u0664\u0665 \u2177 \u00bd\u00b2",
    "snake_case camelCase HTTPServer2 __init__", "int main() {\n\treturn a[i++] /*x*/;\n}\n\n", "https://example.org/a/b?c=d&e=f#g",
    "na\u00efve cafe\u0301 \u00dcn\u0131c\u00f6d\u00e9 \u00df \u1e9e \ufb01 \u212b \u2126", "e\u0301 a\u0308\u0323 \u0301x \u0301 \u0301A q\u0323\u0307",
    "\uff21\uff22\uff23 \uff71\uff76\uff9e \u3392 \u2460 \u00a8 \ufdfa", "\u4e2d\u6587\u5b57\u7b26\uff0c\u6df7\u6392 English \u548c 123\u3002",
    "\u65e5\u672c\u8a9e\u306e\u30c6\u30ad\u30b9\u30c8\u3001\u30ab\u30bf\u30ab\u30ca\u30fb\u3072\u3089\u304b\u3099\u306a\u3002", "\ud55c\uad6d\uc5b4 \u1112\u1161\u11ab \uac00\u11a8",
    "\u0420\u0443\u0441\u0441\u043a\u0438\u0439 \u0442\u0435\u043a\u0441\u0442, \u0435\u0449\u0435\u0308 \u0421\u041b\u041e\u0412\u041e \u0419", "\u0627\u0644\u0639\u0631\u0628\u064a\u0629 \u0646\u0635 \u0661\u0662\u0663", "\u0939\u093f\u0928\u094d\u0926\u0940 \u092e\u0947\u0902 \u0928\u093c",
    "\U0001f44d\U0001f3fd \U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea \u2764\ufe0f", "a\u00a0b\u2003c\u3000d\u0085e\u180ef\u200bg\ufeffh\u2028i\u2029j",
    "\x00\x01\x7f\x1b[0m\x00", "\U0001d49c\U0001d7d9 \U00010400", "\u0130I\u0131i\u03a3\u03c2 \u01c5", "a" * 90, "ab" * 60, " " * 40 + "x", "\n" * 20, "=" * 33, "0" * 50, "\u00e9" * 70,
    MARK + "a" + MARK + MARK + " b " + MARK, "<0x0A><0xE2>", "<|endoftext|><s></s><unk><s> a", "x<tool_call>y </think> <think>", "<mask> a<mask>b <mask>\n", "word words wordword word.", "\n\n \n\n\n<h1>h</h1>",
]
POOL = (list("aabesxtZDMLVE   \n\r\t''/.-_19<>|,") + list(
    "\u017f\u00e9\u00c9\u01c5\u02b0\u4e2d\u0301\u0323\u0663\u00b2\u2167\u00a0\u3000\u0085\u200d\u20ac\U0001f44d\U0001d49c\u0130\u30ab\u3099\u30fb\ufb01\uac00\u11a8\u2581\u00df\x00\x1f\u0435\u0308\ufe0f\U0001f3fd\u061f\u2013") +
    ["  ", "   ", "<s>", "</s>", "<unk>", "<|endoftext|>", "<think>", "<mask>", "word", " the ", "\n\n", "<0x41>", "\u4e2d\u6587", "1234", "\r\n"])


def any_character(rng):
    """Returns a character that Unicode 3.2 has: later ones may differ between the library's tables and Ingot's."""
    while True:
        c = chr(rng.choice((rng.randrange(0x3400), rng.randrange(0x10000), rng.randrange(0x1D000, 0x30000))))
        if unicodedata.ucd_3_2_0.category(c) not in ("Cn", "Cs", "Co"):
            return c


def texts(count, seed):
    rng = random.Random(seed)
    yield from TEXTS
    for i in range(count):
        if i % 10 == 9:
            yield "".join(any_character(rng) if rng.random() < 0.7 else rng.choice(POOL) for _ in range(20))
            continue
        yield "".join(rng.choice(POOL) for _ in range(rng.randint(1, 300 if i % 50 == 0 else 24)))


def corpus():
    text = (ROOT / "README.md").read_text() + (ROOT / "docs/tokenizers.md").read_text()
    return [text] + [t for t in TEXTS for _ in range(3)]


def trained(pre_tokenizer, alphabet, vocabulary=VOCABULARY):
    """Returns vocabulary (a list) and merges of a BPE."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.train_from_iterator(corpus(), trainers.BpeTrainer(
        vocab_size=vocabulary, initial_alphabet=alphabet, limit_alphabet=300, show_progress=False, min_frequency=2))
    model = json.loads(tokenizer.to_str())["model"]
    return sorted(model["vocab"], key=model["vocab"].get), [tuple(m) for m in model["merges"]]


def byte_level(prefix=False, regex=True):
    return {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": True, "use_regex": regex}


def split(pattern, behavior="Isolated", invert=False, kind="Regex"):
    return {"type": "Split", "pattern": {kind: pattern}, "behavior": behavior, "invert": invert}


def sequence(kind, *steps):
    return {"type": "Sequence", kind: list(steps)}


def replace(pattern, content):
    return {"type": "Replace", "pattern": {"String": pattern}, "content": content}


def added(content, special=True, **options):
    return {"content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
            "special": special, **options}


def document(tokens, merges, special, more=(), **parts):
    """Puts the special tokens first (ids 0, 1, ...) and `more` added tokens last."""
    names = [token["content"] for token in special] + tokens
    vocab = {name: i for i, name in enumerate(names)}
    rows = [{"id": vocab[token["content"]], **token} for token in special]
    for token in more:
        rows.append({"id": vocab.get(token["content"], len(vocab) + sum(r["id"] >= len(vocab) for r in rows)), **token})
    model = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
             "fuse_unk": False, "byte_fallback": False, "ignore_merges": False, "vocab": vocab, "merges": [list(m) for m in merges]}
    model.update(parts.pop("model", {}))
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": rows, "normalizer": parts.get("normalizer"),
            "pre_tokenizer": parts.get("pre_tokenizer"), "post_processor": None, "decoder": parts.get("decoder"), "model": model}


def families():
    bytes_all = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokens, merges = trained(pre_tokenizers.ByteLevel(add_prefix_space=False), bytes_all)
    end = [added("<|endoftext|>")]

    def byte_family(*steps, normalizer=None, special=end, more=(), model=None):
        pre = steps[0] if len(steps) == 1 else sequence("pretokenizers", *steps)
        return document(tokens, merges, special, more, normalizer=normalizer, pre_tokenizer=pre, decoder=byte_level(),
                        model=model or {})

    yield "gpt2_prefix", byte_family(byte_level(prefix=True), special=[added("<mask>", lstrip=True), added("<s>", normalized=True)])
    yield "llama3", byte_family(split(LLAMA3), byte_level(regex=False), model={"ignore_merges": True})
    yield "qwen2", byte_family(split(QWEN2), byte_level(regex=False), normalizer={"type": "NFC"},
                               more=[added("<think>", False), added("</think>", False), added("<tool_call>", False)])
    yield "tekken", byte_family(split(TEKKEN), byte_level(regex=False), special=[added("<unk>"), added("<s>"), added("</s>")],
                                more=[added("[INST]", False)])
    yield "smollm", byte_family({"type": "Digits", "individual_digits": True}, byte_level())
    yield "deepseek3", byte_family(split(r"\p{N}{1,3}"), split(HAN), split(DEEPSEEK3), byte_level(regex=False))
    yield "deepseek_coder", byte_family(split("[\r\n]"), split(r"\s?\p{L}+"), split(r"\s?\p{P}+"), split(HAN),
                                        {"type": "Digits", "individual_digits": True}, byte_level(regex=False))
    yield "neox", byte_family(byte_level(), normalizer={"type": "NFC"}, more=[added(" " * n, False, normalized=True) for n in (4, 3, 2)])
    yield "falcon", byte_family({"type": "Punctuation", "behavior": "Contiguous"}, byte_level(), {"type": "Digits", "individual_digits": False},
                                split("[0-9][0-9][0-9]"))
    yield "splits", byte_family(split(",", "MergedWithPrevious", kind="String"), split(r"(?=[A-Z])"), split(r"-|\.", "MergedWithNext"),
                                split(r"\w+", "Contiguous", True), split("\u4e2d", "Removed"), split(r"^\s*#|$", "Isolated"),
                                {"type": "Punctuation"}, byte_level(),
                                normalizer=sequence("normalizers", {"type": "NFKD"}, {"type": "Strip", "strip_left": True, "strip_right": False}))
    some = [t for t in tokens if len(t) > 1 or t in "abcdefghijklmnopqrstuvwxyz.,\u0120\u010a"]
    few = [m for m in merges if all(c in "abcdefghijklmnopqrstuvwxyz.,\u0120\u010a" for c in "".join(m))]
    some = [t for t in some if all(c in "abcdefghijklmnopqrstuvwxyz.,\u0120\u010a" for c in t)]
    yield "few_bytes", document(some, few, [added("<unk>")], pre_tokenizer=byte_level(), decoder=byte_level(),
                                model={"unk_token": "<unk>", "fuse_unk": True})

    metaspace = {"type": "Metaspace", "replacement": MARK, "prepend_scheme": "always", "split": True}
    words, joins = trained(pre_tokenizers.Metaspace(), [MARK], 380)
    byte_tokens = [f"<0x{b:02X}>" for b in range(256)]
    three = [added("<unk>"), added("<s>"), added("</s>")]
    fallback = {"unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True}
    sentence = sequence("decoders", replace(MARK, " "), {"type": "ByteFallback"}, {"type": "Fuse"},
                        {"type": "Strip", "content": " ", "start": 1, "stop": 0})
    prefix = sequence("normalizers", {"type": "Prepend", "prepend": MARK}, replace(" ", MARK))

    def sentence_family(special=three, more=(), decoder=sentence, model=None, **parts):
        return document(byte_tokens + words, joins, special, more, decoder=decoder, model=model or fallback, **parts)

    yield "llama2", sentence_family(normalizer=prefix)
    yield "llama2_first", sentence_family(pre_tokenizer={**metaspace, "prepend_scheme": "first", "split": False})
    yield "llama2_added", sentence_family(normalizer=prefix, special=[added("<unk>", normalized=True), added("<s>", normalized=True, rstrip=True), added("</s>")],
                                          more=[added("word", False, single_word=True), added("<think>", False, rstrip=True), added(MARK + MARK, False)])
    yield "gemma", sentence_family(normalizer=replace(" ", MARK), pre_tokenizer=split(" ", "MergedWithPrevious", kind="String"),
                                   more=[added("\n\n", False), added(MARK * 2, False), added("<h1>", False)],
                                   decoder=sequence("decoders", replace(MARK, " "), {"type": "ByteFallback"}, {"type": "Fuse"}))
    yield "metaspace_old", sentence_family(pre_tokenizer={"type": "Metaspace", "replacement": MARK, "add_prefix_space": True},
                                           decoder={"type": "Metaspace", "replacement": MARK, "add_prefix_space": True})
    yield "metaspace_never", sentence_family(pre_tokenizer={**metaspace, "prepend_scheme": "never"}, model={**fallback, "ignore_merges": True},
                                             decoder={**metaspace, "prepend_scheme": "never"})
    for fuses in (False, True):
        yield f"unknown_{'fused' if fuses else 'single'}", document(
            [w for w in words if MARK not in w], [m for m in joins if MARK not in "".join(m)], [added("<unk>")],
            normalizer=sequence("normalizers", {"type": "NFKC"}, {"type": "Lowercase"}, {"type": "Strip", "strip_left": True, "strip_right": True}),
            pre_tokenizer=sequence("pretokenizers", {"type": "Whitespace"} if fuses else {"type": "WhitespaceSplit"}, {"type": "Digits", "individual_digits": False},
                                   {"type": "Punctuation", "behavior": "MergedWithPrevious"}),
            decoder={"type": "Fuse"}, model={"unk_token": "<unk>", "fuse_unk": fuses})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--texts", type=int, default=40, help="random texts per family, beside the written ones")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    rows = 0
    for name, content in families():
        text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
        (arguments.out / f"{name}.json").write_text(text, encoding="utf-8")
        tokenizer = Tokenizer.from_str(text)
        specials = {token["id"] for token in content["added_tokens"] if token["special"]}
        with open(arguments.out / f"{name}.jsonl", "w", encoding="utf-8") as out:
            for line in texts(arguments.texts, arguments.seed):
                row = {"text": line}
                for key, is_text in (("ids", True), ("special", False)):
                    tokenizer.encode_special_tokens = is_text
                    row[key] = tokenizer.encode(line, add_special_tokens=False).ids
                # With ignore_merges the library makes a special token of a piece that spells it. Ingot never does.
                if content["model"]["ignore_merges"] and specials & set(row["ids"]):
                    continue
                if row["special"] == row["ids"]:
                    del row["special"]
                decoded = tokenizer.decode(row["ids"], skip_special_tokens=False)
                if "\ufffd" not in decoded:
                    row["decoded"] = decoded
                out.write(json.dumps(row, separators=(",", ":")) + "\n")
                rows += 1
    print(f"{arguments.out}: {rows} encodings")


main()
