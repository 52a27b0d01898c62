#!/usr/bin/env python3
"""Writes tests/golden/data/foreign/: compressed texts and Megatron-LM data sets as other programs write them.

  python tools/export_data_golden.py

The tests make the same texts and tokens by the formulas below and compare. The script is deterministic.

Needs: pip install -r tools/requirements-oracle.txt
"""

import gzip
import json
import struct
from pathlib import Path

import numpy as np
import zstandard

FOLDER = Path(__file__).resolve().parent.parent / "tests/golden/data/foreign"


def long_text():
    """9.4 MB whose characters have one to four bytes, so that blocks of any size cut some of them."""
    line = "".join(f"{i}: naïve café – 東京 😀 the cat sat on the mat.\n" for i in range(40))
    return (line * 5000).encode()


def lines():
    return "".join(json.dumps({"id": i, "text": f"Document {i} of the café.\nIt has {i * 37 % 11} cats. " * (i % 5)},
                              ensure_ascii=False) + "\n" for i in range(200)).encode()


def write(name, data):
    (FOLDER / name).write_bytes(data)
    print(f"{name}: {len(data)} bytes")


def gzip_members(data, cuts):
    edges = [0, *cuts, len(data)]
    return b"".join(gzip.compress(data[a:b], 9, mtime=0) for a, b in zip(edges, edges[1:]))


def zstd_frames(data, cuts):
    edges = [0, *cuts, len(data)]
    compressor = zstandard.ZstdCompressor(level=19, write_checksum=True)
    skippable = struct.pack("<II", 0x184D2A50, 5) + b"pzstd"
    return skippable + b"".join(compressor.compress(data[a:b]) for a, b in zip(edges, edges[1:]))


def megatron(name, documents, dtype, code):
    """The layout of megatron/core/datasets/indexed_dataset.py, _IndexWriter: a document is a list of sequences."""
    sequences = [s for document in documents for s in document]
    lengths = np.array([len(s) for s in sequences], dtype=np.int32)
    pointers = np.concatenate([[0], np.cumsum(lengths.astype(np.int64) * np.dtype(dtype).itemsize)[:-1]])
    ends = np.cumsum([0] + [len(d) for d in documents])
    index = (b"MMIDIDX\x00\x00" + struct.pack("<QB", 1, code) + struct.pack("<QQ", len(sequences), len(ends)) +
             lengths.tobytes() + pointers.astype(np.int64).tobytes() + ends.astype(np.int64).tobytes())
    write(name + ".idx", index)
    write(name + ".bin", b"".join(np.array(s, dtype=dtype).tobytes() for s in sequences))


def main():
    FOLDER.mkdir(parents=True, exist_ok=True)
    text = long_text()
    write("long.txt.gz", gzip_members(text, [1_000_001, 8_400_000]))
    write("long.txt.zst", zstd_frames(text, [3, 4_000_000]))
    write("lines.jsonl.gz", gzip_members(lines(), [777]))
    write("lines.jsonl.zst", zstd_frames(lines(), [778]))
    # Document d has d % 3 + 1 sequences; token t of sequence s of it is (31 d + 7 s + t) % 120, and 0 ends a document.
    documents = [[[(31 * d + 7 * s + t) % 119 + 1 for t in range(5 + (d * s) % 7)] for s in range(d % 3 + 1)]
                 for d in range(30)]
    for document in documents:
        document[-1].append(0)
    for name, dtype, code in [("u8", np.uint8, 1), ("i8", np.int8, 2), ("i16", np.int16, 3), ("i32", np.int32, 4),
                              ("i64", np.int64, 5), ("u16", np.uint16, 8)]:
        megatron("megatron_" + name, documents, dtype, code)


if __name__ == "__main__":
    main()
