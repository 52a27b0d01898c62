"""Tests of the Python module: training on texts, as the program does."""
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import ingot
from conftest import SMALL


def test_presets_and_keys_are_those_of_the_program():
    assert "GPT-2 124M" in ingot.presets()["gpt2-124m"]
    assert "train.steps" in ingot.config_reference()
    assert "layers = 3" in ingot.config_toml("tiny-llama", data="x.txt", set={"model.layers": 3})


def test_threads_that_wait_spin_briefly():
    def settings(**environment):
        inherited = {name: value for name, value in os.environ.items() if name not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")}
        done = subprocess.run([sys.executable, "-c", "import ingot"], check=True, capture_output=True, text=True,
                              env=inherited | {"OMP_DISPLAY_ENV": "verbose"} | environment)
        return done.stderr

    if "GOMP_SPINCOUNT" not in settings():
        pytest.skip("the module's OpenMP is not libgomp")
    assert "GOMP_SPINCOUNT = '10000'" in settings()
    assert "GOMP_SPINCOUNT = '77'" in settings(GOMP_SPINCOUNT="77")
    assert "GOMP_SPINCOUNT = '10000'" not in settings(OMP_WAIT_POLICY="active")


def test_a_model_learns(text):
    trainer = ingot.Trainer("tiny-llama", data=text, set={**SMALL, "train.steps": 60})
    before = trainer.evaluate()
    losses = []
    while not trainer.is_finished:
        losses.append(trainer.step()["loss"])
    after = trainer.evaluate(max_tokens=512)
    assert len(losses) == trainer.steps_done == 60
    assert before["loss"] == pytest.approx(np.log(256), abs=0.3)
    assert after["loss"] < 0.7 * before["loss"]
    # A token is a byte here; the first byte of the text is not predicted.
    assert after["bits_per_byte"] == pytest.approx(after["loss"] / np.log(2), rel=1 / 512)
    assert trainer.generate("the ", tokens=5, seed=1) == trainer.generate("the ", tokens=5, seed=1)


def test_steps_are_those_of_the_program_bit_for_bit(text, tmp_path, program):
    settings = {**SMALL, "model.dropout": 0.1, "train.threads": 1}
    words = [f"--set={key}={value}" for key, value in settings.items()]
    subprocess.run([program, "train", "tiny-llama", "--data", text, "--out", tmp_path / "run", *words], check=True,
                   stdout=subprocess.DEVNULL)
    lines = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    expected = [(line["loss"], line["grad_norm"]) for line in lines if "loss" in line]
    trainer = ingot.Trainer("tiny-llama", data=text, set=settings)
    steps = [trainer.step() for _ in range(12)]
    assert [(step["loss"], step["grad_norm"]) for step in steps] == expected


def test_gradients_are_the_slopes_of_the_loss(text):
    trainer = ingot.Trainer("tiny-llama", data=text, set={**SMALL, "train.grad_accum": 1, "model.width": 16})
    metrics = trainer.backward()
    norm = np.sqrt(sum(np.sum(g.astype(np.float64) ** 2) for g in trainer.gradients().values()))
    name, gradient = max(trainer.gradients().items(), key=lambda item: np.abs(item[1]).max())
    place = np.unravel_index(np.abs(gradient).argmax(), gradient.shape)
    # The gradients are sums over the tokens, or their mean: grad_norm says which.
    slope = gradient[place] * metrics["grad_norm"] / norm
    trainer.discard()
    h, losses = 1e-2, []
    for sign in (1, -1):  # the same batch for both: a new trainer begins with it
        other = ingot.Trainer("tiny-llama", data=text, set={**SMALL, "train.grad_accum": 1, "model.width": 16})
        other.weights()[name][place] += sign * h
        other.weights_changed()
        losses.append(other.backward()["loss"])
    # f32 losses near 5.5 differ by 1e-6 at most by rounding, divided by 2 h; the rest is the third derivative.
    assert (losses[0] - losses[1]) / (2 * h) == pytest.approx(slope, abs=2e-4 + 0.02 * abs(slope))


def test_weights_are_the_models_own_memory(text):
    trainer = ingot.Trainer("tiny-llama", data=text, set=SMALL)
    weights = trainer.weights()
    assert {array.dtype for array in weights.values()} == {np.dtype(np.float32)}
    before = {name: array.copy() for name, array in weights.items()}
    trainer.step()
    assert all(np.any(weights[name] != before[name]) for name in weights)
    loss = trainer.evaluate()["loss"]
    for array in weights.values():
        array[...] = 0
    trainer.weights_changed()
    assert trainer.evaluate()["loss"] == pytest.approx(np.log(256), rel=1e-6) != loss
    kept = weights["final_norm.weight"] if "final_norm.weight" in weights else next(iter(weights.values()))
    del trainer, weights  # the array keeps the trainer's memory
    assert np.all(kept == 0)


def test_backward_must_be_followed_by_update_or_discard(text):
    trainer = ingot.Trainer("tiny-llama", data=text, set=SMALL)
    trainer.backward()
    with pytest.raises(ingot.Error, match="call update"):
        trainer.backward()
    trainer.update()
    with pytest.raises(ingot.Error, match="call backward"):
        trainer.update()


def test_the_gil_is_free_while_steps_compute(text):
    trainer = ingot.Trainer("tiny-llama", data=text, set={**SMALL, "model.width": 128, "train.batch_size": 32})
    losses = []
    thread = threading.Thread(target=lambda: losses.append(trainer.step()["loss"]))
    thread.start()
    ticks = 0
    while thread.is_alive():
        ticks += 1
        time.sleep(0)
    assert ticks > 10
    # On whichever thread a step is made, it is the same step.
    assert losses == [ingot.Trainer("tiny-llama", data=text, set={**SMALL, "model.width": 128, "train.batch_size": 32}).step()["loss"]]


def test_a_run_leaves_what_the_program_leaves(text, tmp_path):
    lines = []
    result = ingot.train("tiny-llama", data=text, set=SMALL, out=tmp_path / "run", on_line=lines.append)
    assert result["steps"] == 12 and pathlib.Path(result["checkpoint"]).is_dir()
    assert any("completed after 12 steps" in line for line in lines)
    assert (tmp_path / "run/report.html").exists()


def test_ctrl_c_saves_before_it_is_raised(text, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import ingot, sys\n"
        f"ingot.train('tiny-llama', data={str(text)!r}, out={str(tmp_path / 'run')!r}, set={SMALL | {'train.steps': 100000}!r},\n"
        "            on_line=lambda line: print(line, flush=True))\n")
    child = subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    for line in child.stdout:
        if line.startswith("step"):
            break
    child.send_signal(signal.SIGINT)
    _, errors = child.communicate(timeout=120)
    assert child.returncode != 0 and "KeyboardInterrupt" in errors
    assert json.loads((tmp_path / "run/run.json").read_text())["status"] == "interrupted"
    assert list((tmp_path / "run/checkpoints").glob("step-*"))


def test_adapters_of_a_model_on_disk(text, tmp_path):
    ingot.train("tiny-llama", data=text, set=SMALL, out=tmp_path / "base")
    start = {"train.init_from": str(tmp_path / "base"), "train.batch_size": 4, "optimizer.lr": 0.01, "sample.count": 0}
    whole = ingot.Trainer("tiny-llama", data=text, set=start)
    lora = {**start, "lora.rank": 4, "train.steps": 12}
    adapted = ingot.Trainer("tiny-llama", data=text, set=lora)
    assert adapted.evaluate()["loss"] == whole.evaluate()["loss"]
    assert {name.rsplit(".", 1)[1] for name in adapted.weights()} == {"lora_a", "lora_b"}
    ingot.train("tiny-llama", data=text, set=lora, out=tmp_path / "run")
    assert not list((tmp_path / "run").rglob("model.safetensors"))
    resumed = ingot.train("tiny-llama", data=text, set={**lora, "train.steps": 16}, out=tmp_path / "run", resume=True)
    assert resumed["steps"] == 16
    assert resumed["loss"] < whole.evaluate()["loss"]
