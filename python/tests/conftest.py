"""What the tests of the Python module share. INGOT_PROGRAM, if set, is the program that they compare the module with."""
import os

import pytest

SMALL = {
    "data.tokenizer": "byte", "model.layers": 1, "model.width": 32, "model.heads": 2, "model.context": 32,
    "train.batch_size": 4, "train.grad_accum": 2, "train.steps": 12, "schedule.warmup_steps": 2, "sample.count": 0,
}


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("".join(f"the cat sat on the mat, and the dog ran {i % 7} times. " for i in range(800)))
    return path


@pytest.fixture
def program():
    path = os.environ.get("INGOT_PROGRAM")
    if not path:
        pytest.skip("INGOT_PROGRAM names no program")
    return path
