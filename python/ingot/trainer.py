"""ingot.Trainer: a model with its optimizer, schedule and data, in this process."""
from __future__ import annotations

import difflib
import os
import pathlib
import tempfile
from typing import Any, Callable, Dict, Iterator, Mapping, Optional, Tuple, Union

import numpy as np

from . import _convert, _ingot
from .errors import ArgumentTypeError, DataError, UnknownNameError, UsageError

Path = Union[str, "os.PathLike[str]"]
Metrics = Dict[str, Any]
# Returns a loss (the mean over the targets that are not -100) and its gradient, from logits (B, T, vocab) and targets (B, T).
Loss = Callable[[np.ndarray, np.ndarray], Tuple[float, Any]]


class _Rows:
    """The batches of data=: rows of an array in an order of every epoch, or what an iterable yields."""

    def __init__(self, data: Any, seed: int):
        self.data, self.seed, self.epoch = data, seed, 0
        self.is_array = hasattr(data, "shape")
        self.left: Tuple[np.ndarray, np.ndarray] | None = None  # rows that no step has taken
        self.iterator: Iterator[Any] | None = None

    def _next(self) -> Tuple[np.ndarray, np.ndarray]:
        if self.is_array:
            order = np.random.default_rng([self.seed, self.epoch]).permutation(len(self.data))
            self.epoch += 1
            return _convert.batch(_convert.array(self.data, "data")[order], "data")
        if self.iterator is None:
            self.iterator = iter(self.data)
        try:
            return _convert.batch(next(self.iterator), "data")
        except StopIteration:
            self.epoch += 1
        again = iter(self.data)  # the next epoch
        first = None if again is self.iterator else next(again, None)
        if first is None:
            raise DataError("data: the iterable has ended; give one that can be iterated again, such as a list or a DataLoader")
        self.iterator = again
        return _convert.batch(first, "data")

    def take(self, rows: int) -> Tuple[np.ndarray, np.ndarray]:
        tokens, targets = self.left or self._next()
        while len(tokens) < rows:
            more = self._next()
            if more[0].shape[1] != tokens.shape[1]:
                raise UsageError(f"data: the rows of a step need one length, got {tokens.shape[1]} and {more[0].shape[1]} tokens")
            tokens, targets = np.concatenate([tokens, more[0]]), np.concatenate([targets, more[1]])
        self.left = (tokens[rows:], targets[rows:]) if len(tokens) > rows else None
        return np.ascontiguousarray(tokens[:rows]), np.ascontiguousarray(targets[:rows])

    def take_back(self, tokens: np.ndarray, targets: np.ndarray) -> None:
        """Makes rows that no step has used the next ones again."""
        left = self.left
        self.left = (np.concatenate([tokens, left[0]]), np.concatenate([targets, left[1]])) if left else (tokens, targets)

    def skip(self, rows: int) -> None:
        """Goes to where a trainer that had taken so many rows was."""
        if not self.is_array:
            return  # the caller gives an iterable that begins where it shall
        self.epoch, rest = divmod(rows, len(self.data))
        if rest:
            self.take(rest)


def _with_checks(loss: Optional[Loss]) -> Optional[Loss]:
    if loss is None:
        return None
    if not callable(loss):
        raise ArgumentTypeError(f"loss= is a function of logits and targets; got {type(loss).__name__}")

    def checked(logits: np.ndarray, targets: np.ndarray) -> Tuple[float, np.ndarray]:
        shape, result = logits.shape, loss(logits, targets)
        if not (isinstance(result, tuple) and len(result) == 2):
            raise ArgumentTypeError(f"loss= must return a pair: the loss, and its gradient of the shape {shape}; "
                                    f"got {type(result).__name__}")
        gradient = _convert.array(result[1], "the gradient of loss=")
        if gradient.shape != shape:
            raise UsageError(f"loss= must return a gradient of the logits' shape {shape}, got {gradient.shape}")
        return float(result[0]), np.ascontiguousarray(gradient, dtype=np.float32)

    return checked


class Trainer(_ingot.Trainer):
    """A model with its optimizer, schedule and data, in this process.

    config: a preset, the path of a TOML file, or nested dicts such as {"preset": "tiny-llama", "train": {"steps": 300}}.
    set: keys that differ, nested or as {"optimizer.lr": 1e-3}.
    data: a text, a folder, a pattern, or a list of them; or an array of token ids, of which one of 1 dimension is a text, and one of 2
    dimensions has rows of model.context + 1 ids; or an iterable of such rows or of pairs (tokens, targets). A target of -100 is not
    counted. Arrays and iterables need data.tokenizer.
    """

    def __init__(self, config: Union[Path, Mapping[str, Any], None] = None, *, data: Any = None, set: Optional[Mapping[str, Any]] = None):
        source, keys = _convert.configuration(config, set)
        self._begin(source, data, keys)

    @classmethod
    def load(cls, folder: Path, *, data: Any = None, set: Optional[Mapping[str, Any]] = None, resume_anyway: bool = False) -> Trainer:
        """Continues from a checkpoint: a folder that save() or `ingot train` has written, or the newest healthy one of a run.

        Without data=, the text is that of the checkpoint. resume_anyway=True allows another one.
        """
        trainer = cls.__new__(cls)
        trainer._begin("", data, _convert.settings(set), os.fspath(folder), resume_anyway)
        return trainer

    def _begin(self, source: str, data: Any, keys: list, resumed: str = "", resume_anyway: bool = False) -> None:
        self._rows: Optional[_Rows] = None
        if _convert.is_paths(data):
            super().__init__(source, _convert.paths(data), keys, False, resumed, resume_anyway)
        elif getattr(data, "ndim", 0) == 1:
            with tempfile.TemporaryDirectory(prefix="ingot-") as folder:  # the library maps the file, so it may go
                path = os.path.join(folder, "tokens.bin")
                _convert.write_shard(path, data)
                super().__init__(source, [path], keys, False, resumed, resume_anyway)
        elif hasattr(data, "__iter__"):
            super().__init__(source, [], keys, True, resumed, resume_anyway)
            self._rows = _Rows(data, self.seed)
            self._rows.skip(self.given_rows)
        else:
            raise ArgumentTypeError(f"data= is a path, an array of token ids, or an iterable of rows; got {type(data).__name__}")

    def _run(self, method: Callable[..., Metrics], batch: Any, lr: Optional[float], loss: Optional[Loss]) -> Metrics:
        checked = _with_checks(loss)
        if batch is not None:
            return method(*_convert.batch(batch), lr, checked)
        if self._rows is None:
            return method(None, None, lr, checked)
        before, (tokens, targets) = self.given_rows, self._rows.take(self.next_rows)
        try:
            return method(tokens, targets, lr, checked)
        except BaseException:
            if self.given_rows == before:  # as a text does
                self._rows.take_back(tokens, targets)
            raise

    def step(self, batch: Any = None, *, lr: Optional[float] = None, loss: Optional[Loss] = None) -> Metrics:
        """Makes the next step: forward, backward and update. Returns its metrics.

        batch: rows of T + 1 token ids, or a pair (tokens, targets) of rows of T, where T is at most the context; by default the next
        ones of data=. lr: in place of the schedule's. loss: in place of the cross-entropy, a function of logits (B, T, vocab) and
        targets (B, T) of a micro-batch, which returns the mean loss over the targets that are not -100, and the gradient of this mean by
        the logits. A step's loss is the mean over all of its targets. The function cannot use the trainer.
        """
        return self._run(super().step, batch, lr, loss)

    def backward(self, batch: Any = None, *, lr: Optional[float] = None, loss: Optional[Loss] = None) -> Metrics:
        """Computes loss and gradients of the next step, as step() does; update() or discard() must follow."""
        return self._run(super().backward, batch, lr, loss)

    def logits(self, tokens: Any) -> np.ndarray:
        """Returns the logits (rows, T, vocab) for rows of at most model.context token ids. The array is the caller's."""
        return super().logits(_convert.ids(tokens, "tokens"))

    def loss(self, batch: Any) -> float:
        """Returns the mean cross-entropy of a batch (as for step(), of any number of rows), without dropout and gradients."""
        return super().loss(*_convert.batch(batch))

    def run(self, steps: Optional[int] = None, *, on_step: Optional[Callable[[Metrics], Any]] = None,
            on_eval: Optional[Callable[[Metrics], Any]] = None, eval_every: Optional[int] = None) -> Metrics:
        """Makes steps until the schedule has ended, at most `steps`. Returns the last step's metrics.

        on_step gets the metrics of every step, and ends the run by returning False. on_eval gets those of evaluate() (with the step)
        every eval_every steps, by default eval.every, and at the end.
        """
        every = self.eval_every if eval_every is None else eval_every
        metrics: Metrics = {}
        made = 0
        while not self.is_finished and made != steps:
            metrics = self.step()
            made += 1
            is_last = (on_step is not None and on_step(metrics) is False) or self.is_finished or made == steps
            if on_eval is not None and (is_last or (every > 0 and self.steps_done % every == 0)):
                on_eval({"step": self.steps_done, **self.evaluate()})
            if is_last:
                break
        return metrics

    def set_weights(self, weights: Mapping[str, Any]) -> None:
        """Copies arrays or torch tensors into the weights of these names (those of weights()); the others stay. Nothing changes on an error."""
        own, copies = self.weights(), []
        for name, value in weights.items():
            if name not in own:
                near = difflib.get_close_matches(name, own, n=3)
                raise UnknownNameError(f"{name}: the model has no such weight"
                                       + (f"; did you mean {' or '.join(near)}?" if near else "; weights() lists them"))
            new = _convert.array(value, name)
            if new.dtype.kind not in "fiu":
                raise ArgumentTypeError(f"{name}: weights are real numbers, got {new.dtype}")
            if new.shape != own[name].shape:
                fix = "; give its transpose" if new.shape == own[name].shape[::-1] else ""
                raise UsageError(f"{name}: has the shape {own[name].shape}, got {new.shape}{fix}")
            copies.append((own[name], new))
        for to, new in copies:
            to[...] = new
        self.weights_changed()

    def save(self, folder: Path) -> pathlib.Path:
        """Writes a checkpoint into a run's folder, as `ingot train` does, and returns its path.

        Trainer.load(folder) and `ingot train --resume --out folder` continue from it; transformers opens it.
        """
        return pathlib.Path(super().save(os.fspath(folder)))
