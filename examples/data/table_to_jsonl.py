#!/usr/bin/env python3
"""Writes a text column of Parquet or Arrow (Feather) files as JSON Lines, which `ingot train --data` reads.

  python3 examples/data/table_to_jsonl.py data/*.parquet --out data.jsonl.zst
  python3 examples/data/table_to_jsonl.py data.arrow --column content --out data.jsonl.gz

The output is compressed if its name ends in .gz or .zst. The files are read a batch of rows at a time, so memory does not
grow with them; the output appears under its name when it is complete. Rows without text are left out and counted.

Needs: pip install pyarrow
"""

import argparse
import json
import os
import sys
from pathlib import Path

try:
    import pyarrow as pa
    import pyarrow.parquet as pq
except ImportError:
    sys.exit("table_to_jsonl.py needs pyarrow: pip install pyarrow")

ROWS_AT_ONCE = 1024


def column_of(schema, wanted, file):
    """Returns the name of the column; the error lists those that hold text."""
    is_text = lambda t: pa.types.is_string(t) or pa.types.is_large_string(t)
    texts = [field.name for field in schema if is_text(field.type)]
    if wanted not in schema.names:
        sys.exit(f"{file}: has no column \"{wanted}\"; name one of its text columns with --column: {', '.join(texts)}")
    if not is_text(schema.field(wanted).type):
        sys.exit(f"{file}: column \"{wanted}\" is {schema.field(wanted).type}, text was expected: {', '.join(texts)}")
    return wanted


def batches(file, column):
    """Yields the column's values, a list at a time, of a Parquet file, an Arrow file or an Arrow stream."""
    with open(file, "rb") as f:
        magic = f.read(6)
    if magic[:4] == b"PAR1":
        with pq.ParquetFile(file) as table:
            name = column_of(table.schema_arrow, column, file)
            for batch in table.iter_batches(ROWS_AT_ONCE, columns=[name]):
                yield batch.column(0).to_pylist()
        return
    with pa.memory_map(str(file)) as source:
        if magic == b"ARROW1":
            reader = pa.ipc.open_file(source)
            parts = (reader.get_batch(i) for i in range(reader.num_record_batches))
        else:
            reader = parts = pa.ipc.open_stream(source)  # as Hugging Face datasets writes its .arrow files
        name = column_of(reader.schema, column, file)
        for batch in parts:
            values = batch.column(batch.schema.get_field_index(name))
            for begin in range(0, len(values), ROWS_AT_ONCE):
                yield values.slice(begin, ROWS_AT_ONCE).to_pylist()


def open_output(path):
    codec = {".gz": "gzip", ".zst": "zstd"}.get(Path(path).suffix)
    raw = pa.OSFile(path, "wb")
    return pa.CompressedOutputStream(raw, codec) if codec else raw


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+", help=".parquet, .arrow or .feather files")
    parser.add_argument("--column", default="text", help="the column with the text (default: text)")
    parser.add_argument("--out", required=True, help="new file: .jsonl, .jsonl.gz or .jsonl.zst")
    args = parser.parse_args()
    if os.path.exists(args.out):
        sys.exit(f"{args.out}: exists already; name a new file, or remove it")
    unfinished = str(Path(args.out).with_name(".unfinished-" + Path(args.out).name))
    documents, skipped, file = 0, 0, args.out
    try:
        with open_output(unfinished) as out:
            for file in args.files:
                for values in batches(file, args.column):
                    texts = [v for v in values if v]
                    skipped += len(values) - len(texts)
                    documents += len(texts)
                    out.write("".join(json.dumps({"text": t}, ensure_ascii=False) + "\n" for t in texts).encode())
        os.replace(unfinished, args.out)
    except (pa.ArrowInvalid, OSError) as error:
        sys.exit(f"{file}: {error}")
    finally:
        if os.path.exists(unfinished):
            os.remove(unfinished)
    print(f"{args.out}: {documents} documents, {skipped} rows without text left out")


if __name__ == "__main__":
    main()
