"""Runs the notebook and the Python of the documentation, and compares what docs/python.md and the stubs list with what there is."""
import ast
import inspect
import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

import ingot

ROOT = pathlib.Path(__file__).resolve().parents[2]
PYTHON = re.compile(r"^```python\n(.*?)^```", re.M | re.S)


def blocks(page):
    return PYTHON.findall((ROOT / page).read_text())


def run_cells(cells, folder):
    """Runs cells in order, as a notebook does, in a process of their own. Returns what they print."""
    script = folder / "cells.py"
    script.write_text("\n\n".join(cells))
    done = subprocess.run([sys.executable, script], cwd=folder, env={**os.environ, "MPLBACKEND": "Agg"}, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=200)
    assert done.returncode == 0, done.stdout
    return done.stdout


def write_book(folder):
    (folder / "book.txt").write_text("".join((ROOT / "docs" / name).read_text() for name in ("numerics.md", "running.md", "log.md")))


def test_the_notebook_runs(tmp_path):
    pytest.importorskip("matplotlib")
    notebook = json.loads((ROOT / "examples/notebook.ipynb").read_text())
    assert notebook["nbformat"] == 4 and all(cell["id"] for cell in notebook["cells"])
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert not any(cell["outputs"] or cell["execution_count"] for cell in code), "the notebook is kept without outputs"
    printed = run_cells(["".join(cell["source"]) for cell in code], tmp_path)
    warm, after, plain, plain_after = map(float, re.search(r"warm loss (\S+) -> (\S+); plain loss (\S+) -> (\S+)", printed).groups())
    assert plain < 3.0 and after < warm + 0.1 and plain_after < plain + 0.5
    assert (tmp_path / "bible/checkpoints").is_dir()


def test_the_page_on_python_runs(tmp_path):
    pytest.importorskip("matplotlib")
    write_book(tmp_path)
    printed = run_cells(blocks("docs/python.md"), tmp_path)
    scores = [float(line) for line in printed.splitlines() if re.fullmatch(r"\d\.\d+", line)]
    assert len(scores) == 20 and scores[-1] < scores[0] < 1.01


def test_the_fine_tune_of_the_walk_through_runs(tmp_path):
    write_book(tmp_path)
    subprocess.run([sys.executable, ROOT / "examples/data/make_chats.py", "chats"], cwd=tmp_path, check=True)
    # A small model in the place of the walk-through's.
    base = ingot.Trainer("tiny-llama", data=tmp_path / "book.txt", set={"model": {"layers": 1, "context": 192}, "train.steps": 20})
    base.run()
    base.save(tmp_path / "runs/demo")
    [block] = blocks("docs/fine-tuning.md")
    assert block.count("\n") <= 10
    printed = run_cells([block], tmp_path)
    losses = [ast.literal_eval(line)["loss"] for line in printed.splitlines() if line.startswith("{")]
    assert len(losses) >= 2 and losses[-1] < losses[0]
    assert "What is the day after Monday?" in printed and (tmp_path / "runs/answers-py/checkpoints/step-000000080").is_dir()


def public_names():
    return set(ingot.__all__) | {f".{name}" for name in dir(ingot.Trainer) if not name.startswith("_")}


def test_the_page_on_python_lists_every_name():
    table = "\n".join(re.findall(r"^\|.*\|$", (ROOT / "docs/python.md").read_text(), re.M))
    listed = set(re.findall(r"`(?:Trainer)?(\.?\w+)", table))
    assert public_names() - listed == set()
    assert {name for name in listed if name.startswith(".")} - public_names() == set()


def test_stubs_and_annotations_are_complete():
    package = pathlib.Path(ingot.__file__).parent
    assert (package / "py.typed").exists()
    for function in [ingot.train, ingot.config_toml, *(value for value in vars(ingot.Trainer).values() if inspect.isfunction(value))]:
        signature = inspect.signature(function)
        unknown = [name for name, one in signature.parameters.items() if one.annotation is one.empty and name != "self"]
        assert not unknown and (signature.return_annotation is not signature.empty or function.__name__ == "__init__"), function
    stub = package / "_ingot.pyi"
    if not stub.exists():
        pytest.skip("this package was not made by CMake")
    tree = ast.parse(stub.read_text())
    [stubbed] = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Trainer"]
    names = {node.name for node in stubbed.body if isinstance(node, ast.FunctionDef)}
    assert {name[1:] for name in public_names() if name.startswith(".")} - names <= {"load", "run", "set_weights"}
