"""Tests of a trainer on data, losses, weights and callbacks of one's own, and of its checkpoints."""
import gc
import json
import subprocess
import threading
import warnings

import numpy as np
import pytest

import ingot
from conftest import SMALL

NESTED = {"preset": "tiny-llama", "model": {"layers": 1, "width": 32, "heads": 2, "context": 32},
          "data": {"tokenizer": "byte"}, "train": {"batch_size": 4, "grad_accum": 2, "steps": 12},
          "schedule": {"warmup_steps": 2}, "sample": {"count": 0}}


@pytest.fixture
def tokens():
    """A text of token ids in which every window occurs once."""
    return np.random.default_rng(5).integers(0, 256, 6000)


def cross_entropy(logits, targets):
    """The mean over the targets that are not -100, by its definition, and its gradient."""
    p = np.exp(logits.astype(np.float64))
    p /= p.sum(-1, keepdims=True)
    counted = targets != -100
    rows, columns = np.nonzero(counted)
    loss = -np.log(p[rows, columns, targets[counted]]).mean()
    p[rows, columns, targets[counted]] -= 1
    return loss, p * counted[..., None] / counted.sum()


def test_nested_dicts_are_a_configuration(text):
    assert ingot.config_toml(NESTED, data=text) == ingot.config_toml("tiny-llama", data=text, set=SMALL)
    listed = {"optimizer": {"kind": "adamw", "group": [{"roles": ["matrix"], "kind": "muon"}]}, "train": {"threads": np.int64(1)}}
    toml = ingot.config_toml({**NESTED, **listed}, data=[text, "other text.txt"])
    assert '[[optimizer.group]]' in toml and '"other text.txt"' in toml
    assert ingot.config_toml(set={"model.tied": np.bool_(False)}).count("tied = false") == 1


def test_an_array_of_one_dimension_is_a_text(tokens, tmp_path, program):
    trainer = ingot.Trainer(NESTED, data=tokens, set={"train.threads": 1})
    (tmp_path / "bytes.txt").write_bytes(b"")
    losses = [trainer.step()["loss"] for _ in range(12)]
    assert trainer.is_finished and trainer.evaluate()["tokens"] > 100
    # The program on a shard with the same tokens.
    header = np.zeros(256, "<i4")
    header[:3] = 20240520, 1, tokens.size
    (tmp_path / "all.bin").write_bytes(header.tobytes() + tokens.astype("<u2").tobytes())
    words = [f"--set={key}={value}" for key, value in {**SMALL, "train.threads": 1}.items()]
    subprocess.run([program, "train", "tiny-llama", "--data", tmp_path / "all.bin", "--out", tmp_path / "run", *words], check=True,
                   stdout=subprocess.DEVNULL)
    lines = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    assert losses == [line["loss"] for line in lines if "loss" in line]


def test_rows_and_iterables_train_alike(tokens):
    rows = tokens[: 33 * 16].reshape(16, 33)
    pairs = [(rows[i:i + 3, :-1], rows[i:i + 3, 1:]) for i in range(0, 16, 3)]
    by_pairs = ingot.Trainer(NESTED, data=pairs)
    by_rows = ingot.Trainer(NESTED, data=(row for row in rows.tolist()))
    losses = [by_pairs.step()["loss"] for _ in range(5)]  # it begins again after two steps
    assert [by_rows.step()["loss"] for _ in range(2)] == losses[:2]
    with pytest.raises(ingot.DataError, match="the iterable has ended"):
        by_rows.step()
    assert by_rows.steps_done == 2
    shuffled, seen = ingot.Trainer(NESTED, data=rows), []

    def records(logits, targets):
        seen.extend(map(tuple, targets))
        return cross_entropy(logits, targets)

    for _ in range(12):
        shuffled.step(loss=records)
    assert shuffled.is_finished
    epochs = [seen[i:i + 16] for i in range(0, 96, 16)]
    assert all(set(epoch) == set(map(tuple, rows[:, 1:])) for epoch in epochs) and len(set(map(tuple, epochs))) == 6
    with pytest.raises(ValueError, match="there is no validation text"):
        shuffled.evaluate()


def test_a_step_takes_a_batch_a_rate_and_masked_targets(tokens):
    rows = tokens[: 33 * 7].reshape(7, 33)
    a, b, c = (ingot.Trainer(NESTED, data=rows) for _ in range(3))
    before = {name: array.copy() for name, array in a.weights().items()}
    assert a.step(rows, lr=0.0)["lr"] == 0
    assert all(np.array_equal(array, before[name]) for name, array in a.weights().items())
    targets = rows[:, 1:].copy()
    targets[:, ::2] = -100
    masked = b.step((rows[:, :-1], targets), lr=0.1)
    assert masked["tokens"] == 7 * 16 and masked["lr"] == 0.1 and b.steps_done == 1
    # A token that nothing predicts changes no loss: a shorter batch is the same as a padded one.
    short = c.loss((rows[:, :16], targets[:, :16]))
    padded = np.concatenate([targets[:, :16], np.full((7, 16), -100)], axis=1)
    assert short == c.loss((rows[:, :-1], padded))


def test_logits_predict_the_loss_and_outlive_the_trainer(tokens):
    rows = tokens[: 33 * 5].reshape(5, 33)
    trainer = ingot.Trainer(NESTED, data=rows)
    trainer.run(4)
    logits = trainer.logits(rows[:, :-1])
    assert logits.shape == (5, 32, 256) and logits.dtype == np.float32 and logits.flags.owndata is False
    assert cross_entropy(logits, rows[:, 1:])[0] == pytest.approx(trainer.loss(rows), rel=1e-5)
    # Only earlier tokens matter; rounding may depend on the shapes of products.
    assert np.allclose(trainer.logits(rows[:1, :9]), logits[:1, :9], rtol=1e-4, atol=1e-5)
    kept = logits.copy()
    trainer.run(2)
    del trainer
    gc.collect()
    assert np.array_equal(logits, kept)


def test_a_loss_of_ones_own_has_the_gradients_of_the_heads(tokens):
    rows = tokens[: 33 * 7].reshape(7, 33)
    built_in, own = ingot.Trainer(NESTED, data=rows), ingot.Trainer(NESTED, data=rows)
    for trainer in (built_in, own):
        trainer.step(rows)
    want, got = built_in.backward(rows), own.backward(rows, loss=cross_entropy)
    assert got["loss"] == pytest.approx(want["loss"], rel=1e-5) and got["tokens"] == want["tokens"] and "top1" not in got
    assert got["grad_norm"] == pytest.approx(want["grad_norm"], rel=1e-4)
    for name, gradient in built_in.gradients().items():
        # 7 * 32 terms, 40 roundings of 2^-24 each (tests/train/gradient_tolerance.h).
        assert np.linalg.norm(own.gradients()[name] - gradient) <= 2**-24 * np.sqrt(40 * 256) * np.linalg.norm(gradient), name
    for trainer in (built_in, own):
        trainer.update()
    assert own.loss(rows) == pytest.approx(built_in.loss(rows), rel=1e-5)


def test_a_loss_of_ones_own_has_the_slopes_of_central_differences(tokens):
    rows = tokens[: 33 * 4].reshape(4, 33)

    def loss(logits, targets):
        d = logits - np.sin(np.arange(256))
        return 0.5 * float((d.astype(np.float64) ** 2).sum()) / targets.size, d / targets.size

    trainer = ingot.Trainer(NESTED, data=rows)
    metrics = trainer.backward(rows, loss=loss)
    norm = np.sqrt(sum(np.sum(g.astype(np.float64) ** 2) for g in trainer.gradients().values()))
    gradients = {name: g * (metrics["grad_norm"] / norm) for name, g in trainer.gradients().items()}
    trainer.discard()
    h, losses = 1e-2, []
    for step in (h, -2 * h):  # along the gradient of all weights
        for name, weight in trainer.weights().items():
            weight += np.float32(step / metrics["grad_norm"]) * gradients[name]
        trainer.weights_changed()
        losses.append(loss(trainer.logits(rows[:, :-1]), rows[:, 1:])[0])
    assert (losses[0] - losses[1]) / (2 * h) == pytest.approx(metrics["grad_norm"], rel=0.01)


def test_a_loss_of_ones_own_gets_arrays_that_are_its_own_and_its_errors_arrive(tokens):
    trainer = ingot.Trainer(NESTED, data=tokens)
    other = ingot.Trainer(NESTED, data=tokens)
    kept = []

    def keeps(logits, targets):
        kept.append((logits, logits.copy(), targets, targets.copy()))
        return cross_entropy(logits, targets)

    trainer.step(loss=keeps)
    trainer.step(loss=cross_entropy)
    assert len(kept) == 2 and all(np.array_equal(a, b) and np.array_equal(c, d) for a, b, c, d in kept)

    def raises(logits, targets):
        raise LookupError("no loss today")

    with pytest.raises(LookupError, match="no loss today"):
        trainer.step(loss=raises)
    for loss, kind, message in [(lambda z, t: 1.0, TypeError, "must return a pair"), (3, TypeError, "is a function"),
                                (lambda z, t: (1.0, z[0]), ValueError, r"gradient of the logits' shape \(4, 32, 256\)"),
                                (lambda z, t: (trainer.evaluate()["loss"], z), ValueError, "cannot use the trainer"),
                                (lambda z, t: (float("nan"), z), ArithmeticError, "step 3: the loss")]:
        with pytest.raises(kind, match=message):
            trainer.step(loss=loss)
        assert trainer.steps_done == 2
    # After a refused step the text goes on where it was, and only the step of nan took a batch.
    other.step(loss=cross_entropy)
    other.step(loss=cross_entropy)
    other.backward()
    other.discard()
    assert trainer.step()["loss"] == other.step()["loss"]
    rows = tokens[: 33 * 16].reshape(16, 33)
    refused, plain = ingot.Trainer(NESTED, data=rows), ingot.Trainer(NESTED, data=rows)
    with pytest.raises(LookupError):
        refused.step(loss=raises)
    assert [refused.step()["loss"] for _ in range(3)] == [plain.step()["loss"] for _ in range(3)]


def test_an_fp8_head_is_refused_with_the_fix(tokens):
    trainer = ingot.Trainer(NESTED, data=tokens, set={"head.precision": "fp8"})
    with pytest.raises(ValueError, match="set head.precision to"):
        trainer.step(loss=cross_entropy)
    assert np.isfinite(trainer.step()["loss"])


def test_weights_come_from_numpy_and_torch(tokens):
    trainer = ingot.Trainer(NESTED, data=tokens, set={"precision.compute": "bf16"})
    other = ingot.Trainer(NESTED, data=tokens, set={"precision.compute": "bf16", "train.seed": 7})
    assert other.evaluate() != trainer.evaluate()
    other.set_weights({name: array.astype(np.float64) for name, array in trainer.weights().items()})
    assert other.evaluate() == trainer.evaluate()

    class Tensor:
        """What a tensor of torch on a device has."""

        def __init__(self, values, dtype="torch.bfloat16"):
            self.values, self.dtype, self.shape = values, dtype, values.shape

        def detach(self):
            return self

        cpu = detach

        def float(self):
            return Tensor(self.values, "torch.float32")

        def numpy(self):
            assert self.dtype != "torch.bfloat16", "numpy has no bf16"
            return self.values

    other.set_weights({name: Tensor(np.zeros_like(array)) for name, array in other.weights().items()})
    assert other.evaluate()["loss"] == pytest.approx(np.log(256), rel=1e-6)


def test_torch_gives_data_losses_and_weights(tokens):
    torch = pytest.importorskip("torch")
    rows = torch.tensor(tokens[: 33 * 16].reshape(16, 33))
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(rows[:, :-1], rows[:, 1:]), batch_size=3)
    built_in, own = ingot.Trainer(NESTED, data=loader), ingot.Trainer(NESTED, data=loader)

    def loss(logits, targets):
        torch.set_num_threads(1)
        z = torch.from_numpy(logits).requires_grad_()
        value = torch.nn.functional.cross_entropy(z.flatten(0, 1), torch.from_numpy(targets).long().flatten())
        value.backward()
        return value.item(), z.grad

    for _ in range(5):
        assert own.step(loss=loss)["loss"] == pytest.approx(built_in.step()["loss"], rel=1e-5)
    other = ingot.Trainer(NESTED, data=rows)
    other.set_weights({name: torch.nn.Parameter(torch.zeros(array.shape, dtype=torch.bfloat16)) for name, array in other.weights().items()})
    assert other.loss(rows) == pytest.approx(np.log(256), rel=1e-6)


def test_run_calls_back(tokens):
    trainer = ingot.Trainer(NESTED, data=tokens, set={"eval.every": 5})
    steps, evaluations = [], []
    last = trainer.run(on_step=lambda m: steps.append(m["step"]), on_eval=evaluations.append)
    assert steps == list(range(1, 13)) and [e["step"] for e in evaluations] == [5, 10, 12] and last["step"] == 12
    again = ingot.Trainer(NESTED, data=tokens)
    assert again.run(on_step=lambda m: m["step"] < 4)["step"] == 4
    assert again.run(3)["step"] == 7 and again.run(0) == {}


def test_tokens_and_text(tokens):
    trainer = ingot.Trainer(NESTED, data=tokens)
    ids = trainer.encode("Grüße")
    assert len(ids) == 7 and trainer.decode(ids) == "Grüße"
    # Bytes of an untrained model are no UTF-8, and a character may be cut.
    assert "\ufffd" in trainer.generate(tokens=50) and trainer.decode(ids[:3]) == "Gr\ufffd"
    assert trainer.generate("a", tokens=5, top_p=0.5, seed=1) == trainer.generate("a", tokens=5, top_p=0.5, seed=1)


def test_threads_share_a_trainer(tokens):
    trainer, alone = ingot.Trainer(NESTED, data=tokens), ingot.Trainer(NESTED, data=tokens)
    losses, found = [], []

    def steps():
        for _ in range(3):
            losses.append(trainer.step(loss=cross_entropy)["loss"])
            found.append(trainer.logits(tokens[:32]).shape)

    threads = [threading.Thread(target=steps) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(losses) == sorted(alone.step(loss=cross_entropy)["loss"] for _ in range(9)) and len(found) == 9


@pytest.mark.parametrize("kind", ["text", "rows", "lora"])
def test_a_loaded_trainer_continues_bit_for_bit(kind, tokens, tmp_path):
    rows = tokens[: 33 * 14].reshape(14, 33)
    data, settings = (rows if kind == "rows" else tokens), {"model.dropout": 0.1}
    if kind == "lora":
        ingot.Trainer(NESTED, data=data).save(tmp_path / "base")
        settings = {"train.init_from": str(tmp_path / "base"), "lora.rank": 2, "optimizer.lr": 0.01}
    whole, part = ingot.Trainer(NESTED, data=data, set=settings), ingot.Trainer(NESTED, data=data, set=settings)
    want = [whole.step()["loss"] for _ in range(12)]
    assert [part.step()["loss"] for _ in range(5)] == want[:5]
    checkpoint = part.save(tmp_path / "run")
    assert checkpoint == tmp_path / "run/checkpoints/step-000000005"
    for folder in (tmp_path / "run", tmp_path / "run/checkpoints", checkpoint):
        loaded = ingot.Trainer.load(folder, data=data)
        assert loaded.steps_done == 5 and [loaded.step()["loss"] for _ in range(7)] == want[5:]
        assert loaded.is_finished


def test_a_rate_above_the_last_one_is_warned_of(tokens, tmp_path):
    base = ingot.Trainer("tiny-llama", data=tokens, set={**SMALL, "train.steps": 2, "optimizer.lr": 1e-4})
    base.run()
    start = {**SMALL, "train.init_from": str(base.save(tmp_path / "base"))}
    with pytest.warns(UserWarning, match="the learning rate rises to 0.01.* continues with that rate"):
        ingot.Trainer("tiny-llama", data=tokens, set={**start, "optimizer.lr": 1e-2})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ingot.Trainer("tiny-llama", data=tokens, set={**start, "optimizer.lr": 1e-5})


def test_pairs_of_answers_train_and_are_refused_from_rows(tokens, tmp_path):
    line = {"prompt": "the cat", "chosen": " sat", "rejected": " ran"}
    (tmp_path / "pairs.jsonl").write_text((json.dumps(line) + "\n") * 40)
    keys = {**SMALL, "dpo.beta": 0.1, "data.document_mask": True, "data.order": "epochs", "optimizer.lr": 1e-2}
    trainer = ingot.Trainer("tiny-llama", data=tmp_path / "pairs.jsonl", set=keys)
    losses = []
    trainer.run(on_step=lambda step: losses.append(step["loss"]))
    assert abs(losses[0] - np.log(2)) < 1e-4 and losses[-1] < 0.9 * losses[0]
    with pytest.raises(ValueError, match="needs pairs of answers"):
        trainer.step(tokens[:33])
    trainer.save(tmp_path / "run")
    with pytest.raises(ValueError, match="ingot train --resume"):
        ingot.Trainer.load(tmp_path / "run")


def test_the_program_and_python_continue_each_other_bit_for_bit(text, tmp_path, program):
    settings = {**SMALL, "model.dropout": 0.1, "train.threads": 1}
    words = [f"--set={key}={value}" for key, value in settings.items()]

    def ingot_train(*arguments):
        subprocess.run([program, "train", *map(str, arguments)], check=True, stdout=subprocess.DEVNULL)

    def losses(run):
        lines = [json.loads(line) for line in (tmp_path / run / "metrics.jsonl").read_text().splitlines()]
        return {line["step"]: line["loss"] for line in lines if "loss" in line}

    ingot_train("tiny-llama", "--data", text, "--out", tmp_path / "whole", *words)
    want = losses("whole")
    trainer = ingot.Trainer("tiny-llama", data=text, set=settings)
    trainer.run(5)
    trainer.save(tmp_path / "ours")
    ingot_train("--resume", "--out", tmp_path / "ours")
    assert losses("ours") == {step: loss for step, loss in want.items() if step > 5}
    ingot_train("tiny-llama", "--data", text, "--out", tmp_path / "theirs", *words, "--set", "train.stop_at=5")
    loaded = ingot.Trainer.load(tmp_path / "theirs")
    assert [loaded.step()["loss"] for _ in range(7)] == [want[step] for step in range(6, 13)]
    # Both end with the same weights, in files that transformers opens.
    ours, theirs = loaded.save(tmp_path / "loaded"), tmp_path / "whole/checkpoints/step-000000012"
    for name in ("model.safetensors", "optimizer.safetensors", "trainer.json", "config.json", "tokenizer.json", "config.toml"):
        assert (ours / name).read_bytes() == (theirs / name).read_bytes(), name


def test_loading_is_refused_where_the_run_would_not_go_on(text, tokens, tmp_path):
    trainer = ingot.Trainer("tiny-llama", data=text, set=SMALL)
    trainer.run(2)
    trainer.save(tmp_path / "run")
    with pytest.raises(ValueError, match="resume_anyway=True"):
        ingot.Trainer.load(tmp_path / "run", data=tokens)
    other = ingot.Trainer.load(tmp_path / "run", data=tokens, resume_anyway=True, set={"train.steps": 20})
    assert other.steps_done == 2 and other.run()["step"] == 20
    with pytest.raises(ValueError, match="model.width"):
        ingot.Trainer.load(tmp_path / "run", set={"model": {"width": 64}})
    with pytest.raises(ingot.DataError, match="no healthy checkpoint"):
        ingot.Trainer.load(tmp_path / "nothing")
    trainer.backward()
    with pytest.raises(ValueError, match=r"call update\(\) or discard\(\)"):
        trainer.save(tmp_path / "run")
    weights = tmp_path / "run/checkpoints/step-000000002/model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"@")
    with pytest.raises(ingot.DataError, match="model.safetensors"):
        ingot.Trainer.load(tmp_path / "run/checkpoints/step-000000002")
