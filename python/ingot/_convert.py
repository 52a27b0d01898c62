"""Conversions of arguments: configurations to keys, and arrays, tensors and lists to NumPy arrays."""
import json
import os

import numpy as np

from .errors import ArgumentTypeError, DataError, UsageError


def _toml(key, value):
    if isinstance(value, (bool, np.bool_)):
        return "true" if value else "false"
    if isinstance(value, (int, float, np.integer, np.floating)):
        return repr(value.item() if isinstance(value, np.generic) else value)
    if isinstance(value, (str, os.PathLike)):
        return os.fspath(value)
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_toml_inside(key, one) for one in value) + "]"
    raise ArgumentTypeError(f"{key}: a value of the configuration is a number, a text, True or False, or a list of them; "
                            f"got {type(value).__name__}")


def _toml_inside(key, value):
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name} = {_toml_inside(key, one)}" for name, one in value.items()) + "}"
    return json.dumps(os.fspath(value), ensure_ascii=False) if isinstance(value, (str, os.PathLike)) else _toml(key, value)


def _flat(mapping, before=""):
    for name, value in mapping.items():
        if not isinstance(name, str):
            raise ArgumentTypeError(f"the keys of a configuration are texts, got {name!r}")
        if isinstance(value, dict):
            yield from _flat(value, f"{before}{name}.")
        else:
            yield before + name, value


def settings(mapping):
    """Returns {"train": {"steps": 10}}, or {"train.steps": 10}, as ["train.steps=10"]."""
    if not (mapping is None or isinstance(mapping, dict)):
        raise ArgumentTypeError(f"set= is a dict of keys, such as {{\"train.steps\": 10}}; got {type(mapping).__name__}")
    return [f"{key}={_toml(key, value)}" for key, value in _flat(mapping or {})]


def configuration(config, set=None):  # pylint: disable=redefined-builtin
    """Returns a preset, a path or a dict, with the keys that differ from it, as (preset or path, settings)."""
    if isinstance(config, dict):
        keys = dict(config)
        source = keys.pop("preset", "")
        return os.fspath(source), settings(keys) + settings(set)
    if config is None or isinstance(config, (str, os.PathLike)):
        return os.fspath(config or ""), settings(set)
    raise ArgumentTypeError(f"the configuration is a preset, the path of a TOML file, or a dict; got {type(config).__name__}")


def is_paths(data):
    """Returns True for None, a path, and a list of paths."""
    if data is None or isinstance(data, (str, os.PathLike)):
        return True
    return isinstance(data, (list, tuple)) and all(isinstance(one, (str, os.PathLike)) for one in data)


def paths(data):
    if data is None:
        return []
    return [os.fspath(one) for one in (data if isinstance(data, (list, tuple)) else [data])]


def array(values, what):
    """Returns an array, a list or a torch tensor (of any device and precision) as a NumPy array."""
    if hasattr(values, "detach"):
        values = values.detach().cpu()
        if str(values.dtype) in ("torch.bfloat16", "torch.float16"):
            values = values.float()
        values = values.numpy()
    try:
        return np.asarray(values)
    except (TypeError, ValueError) as problem:
        raise ArgumentTypeError(f"{what}: is no array ({problem})") from problem


def ids(values, what):
    """Returns rows of token ids as (rows, columns) int32; one row may come without the first dimension."""
    found = array(values, what)
    if found.dtype.kind not in "iu":
        raise ArgumentTypeError(f"{what}: token ids are whole numbers, got {found.dtype}")
    if found.ndim == 1:
        found = found[None]
    if found.ndim != 2 or found.size == 0:
        raise UsageError(f"{what}: give rows of token ids, an array of 2 dimensions, got the shape {found.shape}")
    if found.dtype.itemsize > 4 or found.dtype == np.uint32:
        if found.min() < -(2**31) or found.max() >= 2**31:
            raise UsageError(f"{what}: a token id lies below 2^31, got {max(found.max(), -found.min())}")
    return np.ascontiguousarray(found, dtype=np.int32)


def batch(given, what="batch"):
    """Returns a batch as (tokens, targets): a pair of them, or rows in which each token is the target of the one before."""
    # A DataLoader of torch yields lists of tensors.
    if len(given) == 2 and (isinstance(given, tuple) or isinstance(given, list) and all(getattr(one, "ndim", 0) == 2 for one in given)):
        tokens, targets = ids(given[0], f"{what}: tokens"), ids(given[1], f"{what}: targets")
        if tokens.shape != targets.shape:
            raise UsageError(f"{what}: tokens {tokens.shape} and targets {targets.shape} need one shape")
        return tokens, targets
    rows = ids(given, what)
    if rows.shape[1] < 2:
        raise UsageError(f"{what}: a row needs 2 tokens at least, of which the last one is a target only; got {rows.shape}")
    return np.ascontiguousarray(rows[:, :-1]), np.ascontiguousarray(rows[:, 1:])


def write_shard(path, tokens):
    """Writes a text of token ids as a shard of llm.c, which the library maps."""
    found = array(tokens, "data")
    if found.dtype.kind not in "iu":
        raise ArgumentTypeError(f"data: token ids are whole numbers, got {found.dtype}")
    if found.size == 0 or found.min() < 0 or found.max() >= 2**31 or found.size >= 2**31:
        raise DataError(f"data: give 1 to 2^31 - 1 token ids from 0 to 2^31 - 1, got {found.size}"
                        + (f" from {found.min()} to {found.max()}" if found.size else ""))
    is_wide = found.max() >= 65536
    header = np.zeros(256, "<i4")
    header[:3] = (20240801, 7, found.size) if is_wide else (20240520, 1, found.size)
    with open(path, "wb") as file:
        file.write(header.tobytes())
        found.astype("<u4" if is_wide else "<u2").tofile(file)
