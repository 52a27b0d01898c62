"""Tests that errors are Python's own kinds, in Python's words, with the program's exit code."""
import numpy as np
import pytest

import ingot
from conftest import SMALL
from ingot.errors import of_exit_code

ROWS = np.arange(5 * 33).reshape(5, 33) % 256


def test_errors_name_the_key_and_have_the_programs_exit_code(text):
    with pytest.raises(ingot.UsageError, match="did you mean train.steps") as refused:
        ingot.Trainer("tiny-llama", data=text, set={"train.stepps": 3})
    assert refused.value.exit_code == 2 and isinstance(refused.value, (ingot.Error, ValueError))
    with pytest.raises(ingot.Error, match="nothing.txt") as refused:
        ingot.Trainer("tiny-llama", data="nothing.txt")
    assert refused.value.exit_code in (2, 3)
    with pytest.raises(ingot.Error, match="parallel"):
        ingot.Trainer("tiny-llama", data=text, set={"parallel.dp": 2})


def test_every_kind_is_the_exception_that_python_raises():
    kinds = {2: ValueError, 3: ValueError, 4: MemoryError, 5: ArithmeticError, 6: OSError, 1: RuntimeError}
    for code, kind in kinds.items():
        error = of_exit_code(code, "a fault")
        assert isinstance(error, kind) and isinstance(error, ingot.Error) and error.exit_code == code and str(error) == "a fault"
    assert str(ingot.UnknownNameError("w: the model has no such weight")) == "w: the model has no such weight"


def test_advice_of_the_command_line_is_in_pythons_words():
    said = str(of_exit_code(2, "name it with --set data.tokenizer=FILE, give --data FILE, or say --resume-anyway; "
                               "`ingot data prepare --data TEXT --out DIR` makes one; choose another --out"))
    assert said == ('name it with set={"data.tokenizer": FILE}, give data=FILE, or say resume_anyway=True; '
                    "`ingot data prepare --data TEXT --out DIR` makes one; choose another out=")


def test_a_trainer_without_text_says_what_to_give():
    with pytest.raises(ValueError, match="give data="):
        ingot.Trainer("tiny-llama")


@pytest.mark.parametrize("arguments, message", [
    ({"config": 3}, "a preset, the path of a TOML file, or a dict; got int"),
    ({"config": "tiny-llama", "set": ["train.steps=3"]}, "set= is a dict"),
    ({"config": "tiny-llama", "set": {"train.steps": None}}, "train.steps: a value of the configuration .* got NoneType"),
    ({"config": {1: 2}}, "keys of a configuration are texts"),
    ({"config": "tiny-llama", "data": 7}, "data= is a path, an array of token ids, or an iterable of rows; got int"),
    ({"config": "tiny-llama", "data": np.zeros(100)}, "token ids are whole numbers, got float64"),
])
def test_wrong_types_are_type_errors(arguments, message):
    with pytest.raises(TypeError, match=message) as refused:
        ingot.Trainer(**arguments)
    assert isinstance(refused.value, ingot.Error)


def test_ids_and_rows_that_do_not_fit_are_named():
    trainer = ingot.Trainer("tiny-llama", data=ROWS, set=SMALL)
    before = {name: array.copy() for name, array in trainer.weights().items()}
    for batch, kind, message in [
        (ROWS + 100, ValueError, "tokens: row 4, column 24 is 256; the model has the ids 0 to 255"),
        (ROWS[:, :1], ValueError, "a row needs 2 tokens"),
        (np.zeros((2, 40), int), ValueError, r"rows of 1 to model.context = 32 tokens, got 2 rows of 39"),
        (np.zeros((9, 33), int), ValueError, r"has 9 rows, .* = 4 \* 2; raise train.grad_accum to 3"),
        ((ROWS[:, :-1], ROWS), ValueError, r"tokens \(5, 32\) and targets \(5, 33\) need one shape"),
        (ROWS / 2, TypeError, "whole numbers, got float64"),
        ("text", TypeError, "whole numbers"),
        (np.array([[1, 2**40]]), ValueError, r"below 2\^31"),
    ]:
        with pytest.raises(kind, match=message) as refused:
            trainer.step(batch)
        assert isinstance(refused.value, ingot.Error)
    for lr in (-1.0, float("nan")):
        with pytest.raises(ValueError, match="lr must be a number of at least 0"):
            trainer.step(ROWS, lr=lr)
    with pytest.raises(ValueError, match="nothing to predict"):
        trainer.loss((ROWS[:, 1:], np.full((5, 32), -100)))
    assert trainer.steps_done == 0
    assert all(np.array_equal(array, before[name]) for name, array in trainer.weights().items())


def test_weights_that_do_not_fit_are_named(text):
    trainer = ingot.Trainer("tiny-llama", data=text, set={**SMALL, "model.kv_heads": 1})
    name, weight = next((name, w) for name, w in trainer.weights().items() if w.ndim == 2 and w.shape[0] != w.shape[1])
    before = weight.copy()
    with pytest.raises(ValueError, match=name.replace(".", r"\.") + ".*give its transpose"):
        trainer.set_weights({name: weight.T})
    with pytest.raises(KeyError, match=f"did you mean {name}"):
        trainer.set_weights({name: weight + 1, name + "s": weight})
    with pytest.raises(TypeError, match="real numbers, got bool"):
        trainer.set_weights({name: weight > 0})
    assert np.array_equal(trainer.weights()[name], before)
