"""Ingot trains GPT- and LLaMA-style language models.

    import ingot
    trainer = ingot.Trainer("tiny-llama", data="book.txt", set={"train.steps": 200})
    while not trainer.is_finished:
        print(trainer.step()["loss"])
    print(trainer.evaluate(), trainer.generate("Once", tokens=50))

Presets and keys are those of the program `ingot`; ingot.presets() and ingot.config_reference() list them. Steps are
those of `ingot train` with the same configuration, bit for bit. A function that computes releases the GIL.
"""
import json as _json
import os as _os

# A thread that waits spins only briefly, so that it leaves a busy machine to others (docs/benchmarks/busy.md). libgomp reads
# this once, when the extension loads it.
if "OMP_WAIT_POLICY" not in _os.environ:
    _os.environ.setdefault("GOMP_SPINCOUNT", "10000")

from . import _ingot
from ._ingot import Error, config_reference, presets

__all__ = ["Error", "Trainer", "config_reference", "config_toml", "presets", "train"]


def _texts(data):
    return [str(path) for path in (data if isinstance(data, (list, tuple)) else [data] if data else [])]


def _settings(settings):
    """Returns {"train.steps": 10} as ["train.steps=10"], which is what --set takes."""

    def toml(value):
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, (list, tuple)):
            return _json.dumps(list(value))
        return str(value)

    return [f"{key}={toml(value)}" for key, value in (settings or {}).items()]


def config_toml(config, *, data=None, set=None):
    """Returns the resolved configuration as TOML. config: a preset, or the path of a TOML file."""
    return _ingot.config_toml(str(config), _texts(data), _settings(set))


class Trainer(_ingot.Trainer):
    """A model with its optimizer, schedule and data, in this process.

    config: a preset, or the path of a TOML file. data: a text, a folder, a pattern, or a list of them. set: keys that
    differ from the configuration, such as {"optimizer.lr": 1e-3}.
    """

    def __init__(self, config, *, data=None, set=None):
        super().__init__(str(config), _texts(data), _settings(set))


def train(config, *, out, data=None, set=None, resume=False, on_line=print):
    """Trains into the run folder `out` as `ingot train` does, with checkpoints, logs and a report.

    on_line is called with every line that the run reports; None for silence. Ctrl-C (or an exception of on_line) ends the run
    after it has saved, and is raised again then; resume=True goes on from the newest checkpoint. Returns loss, top1,
    bits_per_byte, steps, tokens and the checkpoint's folder.
    """
    return _ingot.train(str(config), _texts(data), _settings(set), str(out), resume, on_line)
