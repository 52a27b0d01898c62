#!/usr/bin/env python3
"""Lists every key of the config.json of the families that Ingot supports, and whether it changes what transformers computes.

  python tools/make_hf_keys_golden.py tests/golden/formats/hf_config_keys.json
  python tools/make_hf_keys_golden.py --check tests/golden/formats/hf_config_keys.json

A key is a field of the family's configuration class, or what its code reads of the configuration besides. Each is set to other
values in a tiny model with the same weights; "changes" says whether the logits are others, the weights have other shapes, or
transformers refuses the value. HfConfigKeys.* in tests/formats compares parse_hf_config with the table. --check says whether the
installed version has keys or effects that the table lacks.

Needs: pip install -r tools/requirements-oracle.txt. The script does not use the network.
"""

import argparse
import inspect
import json
import re
import sys
from pathlib import Path

import torch
import transformers

IDS = dict(vocab_size=11, bos_token_id=1, eos_token_id=2, pad_token_id=0)
LLAMA = dict(IDS, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2,
             num_key_value_heads=1, max_position_embeddings=32)
FAMILIES = {
    "gpt2": ("GPT2", dict(IDS, n_embd=16, n_layer=2, n_head=2, n_positions=32)),
    "llama": ("Llama", LLAMA),
    "mistral": ("Mistral", LLAMA),
    "qwen2": ("Qwen2", LLAMA),
    "qwen3": ("Qwen3", dict(LLAMA, head_dim=8)),
    "smollm3": ("SmolLM3", LLAMA),
    "olmo2": ("Olmo2", LLAMA),
    "qwen2 with windows": ("Qwen2", dict(LLAMA, use_sliding_window=True, sliding_window=3, max_window_layers=1)),
    "smollm3 with windows": ("SmolLM3", dict(LLAMA, use_sliding_window=True, sliding_window=3, no_rope_layer_interval=2)),
}
# What config.json says of itself and of its weights, methods of the class, and the type of results.
NOT_KEYS = {"return_dict", "model_type", "architectures", "transformers_version", "dtype", "_name_or_path", "get_text_config", "to_dict",
            "standardize_rope_params", "convert_rope_params_to_dict", "validate_rope", "rope_type", "items", "get", "copy"}
OTHERS = {
    "hidden_act": ["gelu", "relu"], "activation_function": ["gelu", "relu"], "sliding_window": [3, None],
    "layer_types": [["full_attention", "sliding_attention"], ["sliding_attention", "full_attention"]],
    "no_rope_layers": [[0, 1], [0, 0]], "num_key_value_heads": [2, None], "n_inner": [8, None],
    "head_dim": [4, None], "num_attention_heads": [4], "summary_type": ["last"], "summary_activation": ["tanh"],
    "problem_type": ["regression"], "id2label": [{"0": "a"}], "label2id": [{"a": 0}],
    "pad_token_id": [3], "bos_token_id": [3], "eos_token_id": [3, [3, 4]],
    "rope_parameters": [{"rope_type": "default", "rope_theta": 50.0},
                        {"rope_type": "linear", "factor": 2.0, "rope_theta": 10000.0},
                        {"rope_type": "linear", "factor": 2.0, "rope_theta": 10000.0, "partial_rotary_factor": 0.5},
                        {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0}],
    "partial_rotary_factor": [0.5],
}


def other_values(key, default):
    if key in OTHERS:
        return [value for value in OTHERS[key] if value != default]
    if isinstance(default, bool):
        return [not default]
    if isinstance(default, int):
        return [default + 1, 2 * default + 2]
    if isinstance(default, float):
        return [2 * default + 0.25]
    return [True, 2]


def logits(name, values, weights):
    """The logits of a family's tiny model, or None if transformers refuses the values or the weights do not fit."""
    try:
        config = getattr(transformers, name + "Config")(**values)
        config._attn_implementation = "eager"
        model = transformers.AutoModelForCausalLM.from_config(config).eval()
        if weights is not None and {k: v.shape for k, v in model.state_dict().items()} != {k: v.shape for k, v in weights.items()}:
            return None, None
        torch.manual_seed(1)
        state = weights or {k: torch.randn_like(v) for k, v in model.state_dict().items()}
        model.load_state_dict(state)
        with torch.no_grad():
            return model(torch.arange(10)[None] % 11)[0], state
    except Exception:  # pylint: disable=broad-except
        return None, None


def keys_of(name):
    config_class = getattr(transformers, name + "Config")
    keys = dict(config_class().to_dict())
    source = inspect.getsource(inspect.getmodule(getattr(transformers, name + "Model")))
    read = re.findall(r"\bconfig\.(\w+)", source) + re.findall(r"getattr\((?:self\.)?config, \"(\w+)\"", source)
    for key in read:
        keys.setdefault(key, getattr(config_class(), key, None) if not key.startswith("_") else None)
    aliases = config_class.attribute_map
    return {k: v for k, v in keys.items() if k not in NOT_KEYS and not k.startswith("_") and not callable(v) and k not in aliases}


def family_table(name, base):
    config_class = getattr(transformers, name + "Config")
    base = dict(base, initializer_range=0.02)
    want, weights = logits(name, base, None)
    assert want is not None, name
    table = {}
    defaults = config_class(**base).to_dict()
    for key, default in sorted(keys_of(name).items()):
        now = defaults.get(key, default)
        rows = []
        for value in other_values(key, now):
            got, _ = logits(name, {**base, key: value}, weights)
            rows.append({"value": value, "changes": got is None or not torch.equal(got, want)})
        table[key] = rows
    return {"base": {"model_type": config_class.model_type, **base}, "keys": table}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("file", type=Path)
    args = parser.parse_args()
    transformers.logging.set_verbosity(transformers.logging.CRITICAL)
    found = {family: family_table(*FAMILIES[family]) for family in FAMILIES}
    if not args.check:
        lines = [f' {json.dumps(family)}: {{"base": {json.dumps(table["base"])}, "keys": {{\n'
                 + ",\n".join(f"  {json.dumps(key)}: {json.dumps(rows)}" for key, rows in table["keys"].items()) + "}}"
                 for family, table in found.items()]
        args.file.write_text(f'{{"transformers": {json.dumps(transformers.__version__)},\n' + ",\n".join(lines) + "}\n")
    written = json.loads(args.file.read_text())
    missing = [f"{family}: {key}" for family, table in found.items() for key, rows in table["keys"].items()
               if written[family]["keys"].get(key) != rows]
    count = sum(len(table["keys"]) for table in found.values())
    if missing:
        sys.exit(f"make_hf_keys_golden: transformers {transformers.__version__} differs from {args.file} "
                 f"(made by {written['transformers']}) in {', '.join(missing)}; write the file anew and run ingot_formats_tests")
    print(f"make_hf_keys_golden: {count} keys of {len(found)} models of transformers {transformers.__version__} are as in {args.file}")


if __name__ == "__main__":
    main()
