"""Ingot's models that no class of Hugging Face transformers computes, for AutoModelForCausalLM with trust_remote_code.

`ingot export --hf` writes this file beside such a model. The weights have LLaMA's names. config.json has LLaMA's keys,
and under "ingot" what is different: norm (layernorm, rmsnorm, rmsnorm_weightless), positions (learned, rope), mlp
(gelu_tanh, gelu_exact, relu2, swiglu), bias, qkv_bias, norm_place (before, after), qk_norm, qk_norm_over (head, width),
qk_norm_gain, full_layers, nope_every, cap (none, tanh, sigmoid) with cap_a, cap_b, cap_c, rope_scaling (none, linear, llama3,
yarn) with its numbers, rope_dims, parallel_residual, mlp_only_layers, embedding_norm, input_mix, skips and
value_embeddings. There is no cache of keys and values: generation reads the whole text for every token.
"""

import math

import torch
from torch import nn
from torch.nn import functional as F
from transformers import GenerationMixin, PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutput


class IngotConfig(PretrainedConfig):
    model_type = "ingot"
    max_position_embeddings = 2048  # transformers reads it before it has read config.json


class Norm(nn.Module):
    def __init__(self, config):
        super().__init__()
        own, self.width, self.eps = config.ingot, config.hidden_size, config.rms_norm_eps
        self.is_layernorm = own["norm"] == "layernorm"
        has_weight = own["norm"] != "rmsnorm_weightless"
        self.weight = nn.Parameter(torch.ones(self.width)) if has_weight else None
        self.bias = nn.Parameter(torch.zeros(self.width)) if self.is_layernorm and own["bias"] else None

    def forward(self, x):
        if self.is_layernorm:
            return F.layer_norm(x, (self.width,), self.weight, self.bias, self.eps)
        return F.rms_norm(x, (self.width,), self.weight, self.eps)


class Gain(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))


def scalar():
    return nn.Parameter(torch.ones(1))


def frequencies(config):
    """Returns the rotary frequencies (R/2) of the R channels that rotate, scaled as config.json says."""
    own, dim = config.ingot, config.ingot["rope_dims"]
    f = 1.0 / own["rope_theta"] ** (torch.arange(0, dim, 2, dtype=torch.float32) / dim)
    if own["rope_scaling"] == "linear":
        return f / own["rope_factor"]
    if own["rope_scaling"] == "yarn":
        def index_of(turns):
            return dim * math.log(own["rope_original_context"] / (turns * 2 * math.pi)) / (2 * math.log(own["rope_theta"]))
        first = max(math.floor(index_of(own["rope_beta_fast"])), 0)
        last = min(math.ceil(index_of(own["rope_beta_slow"])), dim - 1)
        ramp = ((torch.arange(dim // 2) - first) / (last - first if last != first else 0.001)).clamp(0, 1)
        return f / own["rope_factor"] * ramp + f * (1 - ramp)
    if own["rope_scaling"] != "llama3":
        return f
    context, low, high = (own[f"rope_{key}"] for key in ("original_context", "low_freq_factor", "high_freq_factor"))
    smooth = ((context * f / (2 * math.pi) - low) / (high - low)).clamp(0, 1)
    return (1 - smooth) * f / own["rope_factor"] + smooth * f


def rotate(x, f):
    """Rotates the first R channels of x (B, H, T, D): position t turns the pair (x[i], x[i + R/2]) by t * f[i]."""
    angles = torch.arange(x.shape[2], dtype=torch.float32, device=x.device)[:, None] * f.to(x.device)
    cos, sin = angles.cos(), angles.sin()
    half = f.shape[0]
    low, high, rest = x.float().split((half, half, x.shape[-1] - 2 * half), dim=-1)
    return torch.cat((low * cos - high * sin, high * cos + low * sin, rest), dim=-1).to(x.dtype)


def value_table(config, layer):
    """Returns the table of value embeddings of a block, which the first blocks and the last ones share, or None."""
    n, rest = config.ingot["value_embeddings"], config.num_hidden_layers - config.ingot["value_embeddings"]
    return layer if layer < n else layer - rest if layer >= rest else None


class Attention(nn.Module):
    def __init__(self, config, layer):
        super().__init__()
        self.config, own, dim = config, config.ingot, config.head_dim
        q, kv = config.num_attention_heads * dim, config.num_key_value_heads * dim
        has_bias = own["bias"] or own["qkv_bias"]
        self.q_proj = nn.Linear(config.hidden_size, q, bias=has_bias)
        self.k_proj = nn.Linear(config.hidden_size, kv, bias=has_bias)
        self.v_proj = nn.Linear(config.hidden_size, kv, bias=has_bias)
        self.o_proj = nn.Linear(q, config.hidden_size, bias=own["bias"])
        if own["qk_norm_gain"]:
            over_width = own["qk_norm_over"] == "width"
            self.q_norm, self.k_norm = Gain(q if over_width else dim), Gain(kv if over_width else dim)
        if own["value_embeddings"]:
            self.value_mix = nn.ParameterDict({"own": scalar()})
            if value_table(config, layer) is not None:
                self.value_mix["table"] = scalar()
        every = own["nope_every"]
        self.rotates = own["positions"] == "rope" and (every == 0 or (layer + 1) % every != 0)

    def forward(self, x, mask, value_rows):
        c, own = self.config, self.config.ingot
        B, T, _ = x.shape
        q, k, v = self.q_proj(x), self.k_proj(x), self.v_proj(x)
        if own["value_embeddings"]:
            v = self.value_mix["own"] * v
            if value_rows is not None:
                v = v + self.value_mix["table"] * value_rows
        if own["qk_norm"]:
            gains = (self.q_norm.weight, self.k_norm.weight) if own["qk_norm_gain"] else (None, None)
            over_width = own["qk_norm_over"] == "width"
            q, k = (y if over_width else y.view(B, T, -1, c.head_dim) for y in (q, k))
            q, k = (F.rms_norm(y, y.shape[-1:], g, c.rms_norm_eps) for y, g in zip((q, k), gains))
        q, k, v = (y.view(B, T, -1, c.head_dim).transpose(1, 2) for y in (q, k, v))
        if self.rotates:
            f = frequencies(c)
            q, k = rotate(q, f), rotate(k, f)
            if own["rope_scaling"] == "yarn":
                q, k = q * own["rope_attention_factor"], k * own["rope_attention_factor"]
        group = c.num_attention_heads // c.num_key_value_heads
        k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.o_proj(y.transpose(1, 2).reshape(B, T, -1))


class Mlp(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.kind, bias = config.ingot["mlp"], config.ingot["bias"]
        if self.kind == "swiglu":
            self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=bias)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=bias)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=bias)

    def forward(self, x):
        h = self.up_proj(x)
        if self.kind == "swiglu":
            h = F.silu(self.gate_proj(x)) * h
        elif self.kind == "relu2":
            h = F.relu(h).square()
        else:
            h = F.gelu(h, approximate="tanh" if self.kind == "gelu_tanh" else "none")
        return self.down_proj(h)


class Block(nn.Module):
    def __init__(self, config, layer):
        super().__init__()
        own, layers = config.ingot, config.num_hidden_layers
        self.is_after = own["norm_place"] == "after"
        self.has_attention = layer not in own["mlp_only_layers"]
        self.is_parallel = self.has_attention and own["parallel_residual"]
        self.skip = layers - 1 - layer if own["skips"] and layer >= layers - layers // 2 else None
        self.table = value_table(config, layer)
        self.mix = nn.ParameterDict()
        if self.skip is not None:
            self.mix["skip"] = scalar()
        if own["input_mix"]:
            self.mix["stream"], self.mix["input"] = scalar(), scalar()
        self.mlp = Mlp(config)
        if self.has_attention:
            self.self_attn = Attention(config, layer)
        if self.is_after:
            self.post_feedforward_layernorm = Norm(config)
        elif not self.is_parallel:
            self.post_attention_layernorm = Norm(config)
        if self.has_attention:
            norm = Norm(config)
            if self.is_after:
                self.post_attention_layernorm = norm
            else:
                self.input_layernorm = norm

    def forward(self, x, mask, first, outputs, values):
        """x: the residual stream; first: what the first block read; outputs: of the blocks before; values: by table."""
        if self.skip is not None:
            x = x + self.mix["skip"] * outputs[self.skip]
        if "input" in self.mix:
            x = self.mix["stream"] * x + self.mix["input"] * first
        rows = None if self.table is None else values[self.table]
        if self.is_after:
            if self.has_attention:
                x = x + self.post_attention_layernorm(self.self_attn(x, mask, rows))
            return x + self.post_feedforward_layernorm(self.mlp(x))
        if self.is_parallel:
            h = self.input_layernorm(x)
            return x + self.self_attn(h, mask, rows) + self.mlp(h)
        if self.has_attention:
            x = x + self.self_attn(self.input_layernorm(x), mask, rows)
        return x + self.mlp(self.post_attention_layernorm(x))


class IngotModel(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.embed_positions = None
        if config.ingot["positions"] == "learned":
            self.embed_positions = nn.Embedding(config.max_position_embeddings, config.hidden_size)
        own = config.ingot
        if own["value_embeddings"]:
            width = config.num_key_value_heads * config.head_dim
            self.value_embeddings = nn.ModuleList(
                nn.Embedding(config.vocab_size, width) for _ in range(own["value_embeddings"]))
        if own["embedding_norm"]:
            self.embed_norm = Norm(config)
        self.layers = nn.ModuleList(Block(config, layer) for layer in range(config.num_hidden_layers))
        self.norm = Norm(config)


class IngotForCausalLM(PreTrainedModel, GenerationMixin):
    config_class = IngotConfig
    _tied_weights_keys = {"lm_head.weight": "model.embed_tokens.weight"}

    def __init__(self, config):
        super().__init__(config)
        self.model = IngotModel(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()

    def get_input_embeddings(self):
        return self.model.embed_tokens

    def get_output_embeddings(self):
        return self.lm_head

    def prepare_inputs_for_generation(self, input_ids, attention_mask=None, **_):
        return {"input_ids": input_ids, "attention_mask": attention_mask}

    def forward(self, input_ids, attention_mask=None, labels=None, **_):
        c, own = self.config, self.config.ingot
        T, device = input_ids.shape[1], input_ids.device
        query, key = torch.arange(T, device=device)[:, None], torch.arange(T, device=device)
        full = key <= query
        if attention_mask is not None:
            full = full & (attention_mask[:, None, None, :].bool() | (key == query))
        window = full & (query - key < c.sliding_window) if c.sliding_window else full
        x = self.model.embed_tokens(input_ids)
        if self.model.embed_positions is not None:
            x = x + self.model.embed_positions(key)
        if own["embedding_norm"]:
            x = self.model.embed_norm(x)
        values = [table(input_ids) for table in self.model.value_embeddings] if own["value_embeddings"] else []
        first, outputs = x, []
        for i, layer in enumerate(self.model.layers):
            x = layer(x, full if i in own["full_layers"] else window, first, outputs, values)
            outputs.append(x)
        z = self.lm_head(self.model.norm(x)).float()
        if own["cap"] == "tanh":
            z = own["cap_a"] * torch.tanh(z / own["cap_a"])
        elif own["cap"] == "sigmoid":
            z = own["cap_a"] * torch.sigmoid((z + own["cap_b"]) / own["cap_c"])
        loss = None
        if labels is not None:
            loss = F.cross_entropy(z[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
        return CausalLMOutput(loss=loss, logits=z)
