"""Ingot trains GPT- and LLaMA-style language models.

    import ingot
    trainer = ingot.Trainer("tiny-llama", data="book.txt", set={"train.steps": 200})
    while not trainer.is_finished:
        print(trainer.step()["loss"])
    print(trainer.evaluate(), trainer.generate("Once", tokens=50))

Presets and keys are those of the program `ingot`; ingot.presets() and ingot.config_reference() list them. Steps are
those of `ingot train` with the same configuration, bit for bit. A function that computes releases the GIL.
"""
from __future__ import annotations

import os as _os
from typing import Any, Callable, Dict, List, Mapping, Optional, Union

# A thread that waits spins only briefly, so that it leaves a busy machine to others (docs/benchmarks/busy.md). libgomp reads
# this once, when the extension loads it.
if "OMP_WAIT_POLICY" not in _os.environ:
    _os.environ.setdefault("GOMP_SPINCOUNT", "10000")

from . import _convert, _ingot
from ._ingot import config_reference, presets
from .errors import (ArgumentTypeError, DataError, DiskError, Error, NumericsError, OutOfMemoryError, UnknownNameError,
                     UsageError)
from .trainer import Path, Trainer

__all__ = ["ArgumentTypeError", "DataError", "DiskError", "Error", "NumericsError", "OutOfMemoryError", "Trainer", "UnknownNameError",
           "UsageError", "config_reference", "config_toml", "presets", "train"]

Texts = Union[Path, List[Path], None]
Config = Union[Path, Mapping[str, Any], None]


def config_toml(config: Config = None, *, data: Texts = None, set: Optional[Mapping[str, Any]] = None) -> str:
    """Returns the resolved configuration as TOML. config: a preset, the path of a TOML file, or nested dicts."""
    source, keys = _convert.configuration(config, set)
    return _ingot.config_toml(source, _convert.paths(data), keys)


def train(config: Config = None, *, out: Path, data: Texts = None, set: Optional[Mapping[str, Any]] = None, resume: bool = False,
          on_line: Optional[Callable[[str], Any]] = print) -> Dict[str, Any]:
    """Trains into the run folder `out` as `ingot train` does, with checkpoints, logs and a report.

    on_line is called with every line that the run reports; None for silence. Ctrl-C (or an exception of on_line) ends the run
    after it has saved, and is raised again then; resume=True goes on from the newest checkpoint. Returns loss, top1,
    bits_per_byte, steps, tokens and the checkpoint's folder.
    """
    if not _convert.is_paths(data):
        raise ArgumentTypeError(f"train: data= is a path or a list of paths; ingot.Trainer takes arrays; got {type(data).__name__}")
    source, keys = _convert.configuration(config, set)
    return _ingot.train(source, _convert.paths(data), keys, _os.fspath(out), resume, on_line)
