"""examples/data/table_to_jsonl.py on tables that pyarrow writes, and `ingot data inspect` on its output."""

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pa = pytest.importorskip("pyarrow")
import pyarrow.feather  # noqa: E402
import pyarrow.parquet  # noqa: E402

SCRIPT = Path(__file__).resolve().parents[2] / "examples/data/table_to_jsonl.py"
TEXTS = ["one \"quoted\"\n", "", None, "\u4e2d\u6587 \U0001f600", "x" * 3000] * 700  # more rows than a batch
WRITTEN = [text for text in TEXTS if text]


def write(kind, folder):
    table = pa.table({"id": list(range(len(TEXTS))), "content": pa.array(TEXTS)})
    file = folder / f"table.{kind}"
    if kind == "parquet":
        pa.parquet.write_table(table, file)
    elif kind == "feather":
        pa.feather.write_feather(table, file)
    else:
        with pa.OSFile(str(file), "wb") as out, pa.ipc.new_stream(out, table.schema) as stream:
            stream.write_table(table)
    return file


def convert(file, out, column="content"):
    return subprocess.run([sys.executable, SCRIPT, file, "--column", column, "--out", out], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("kind", ["parquet", "feather", "arrow"])
def test_texts_arrive_in_order(kind, tmp_path):
    out = tmp_path / "out.jsonl.gz"
    result = convert(write(kind, tmp_path), out)
    assert result.returncode == 0, result.stderr
    assert f"{len(WRITTEN)} documents, {len(TEXTS) - len(WRITTEN)} rows without text left out" in result.stdout
    with gzip.open(out, "rt", encoding="utf-8") as lines:
        assert [json.loads(line)["text"] for line in lines] == WRITTEN


def test_a_wrong_column_and_an_existing_file_are_refused(tmp_path):
    table, out = write("parquet", tmp_path), tmp_path / "out.jsonl"
    result = convert(table, out, column="text")
    assert result.returncode == 1 and "name one of its text columns with --column: content" in result.stderr
    assert convert(table, out, column="id").returncode == 1
    assert list(tmp_path.iterdir()) == [table]
    out.write_text("mine")
    assert "exists already" in convert(table, out).stderr
    assert out.read_text() == "mine"


def test_ingot_reads_the_output(tmp_path):
    out = tmp_path / "out.jsonl.zst"
    assert convert(write("parquet", tmp_path), out).returncode == 0
    program = os.environ.get("INGOT_PROGRAM", "ingot")
    result = subprocess.run([program, "data", "inspect", out, "--json"], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)[0]["documents"]["documents"] == len(WRITTEN)
