"""GPT-2, LLaMA and the speed-run variant in plain PyTorch, with the same config fields as ingot/nn/config.h.
bench/pytorch_run.py times it; tools/export_golden.py takes golden values from it.

Needs: pip install torch. See tools/requirements-oracle.txt.

Products are fused as in a fast PyTorch model (one q|k|v product, one gate|up product); attention is
torch's scaled_dot_product_attention, and the loss is F.cross_entropy. `hf_tensors` converts any dictionary that is
keyed by this module's parameter names (weights, gradients) to Hugging Face's names and layouts.
"""

import math
from dataclasses import asdict, dataclass, field

import torch
from torch import nn
from torch.nn import functional as F

IGNORE = -100


@dataclass
class CapConfig:
    kind: str = "none"  # none | tanh: a tanh(x/a) | sigmoid: a sigmoid((x + b)/c)
    a: float = 15.0
    b: float = 0.0
    c: float = 7.5


@dataclass
class ModelConfig:
    """Has the fields of ingot::ModelConfig; 0 means derived, as there."""

    layers: int = 4
    heads: int = 4
    kv_heads: int = 0
    head_dim: int = 0
    width: int = 128
    ffn: int = 0
    context: int = 64
    vocab: int = 65
    norm: str = "rms_norm"  # layer_norm | rms_norm | rms_norm_weightless
    positions: str = "rope"  # learned | rope
    mlp: str = "swiglu"  # gelu_tanh | gelu_exact | relu2 | swiglu
    has_bias: bool = False
    has_qk_norm: bool = False
    is_tied: bool = True
    norm_eps: float = 1e-5
    rope_theta: float = 10000.0
    dropout: float = 0.0
    cap: CapConfig = field(default_factory=CapConfig)
    projection_init: str = "scaled"  # normal | scaled | zero
    init_std: float = 0.02
    # The parts of the speed run of January 2025 (github.com/KellerJordan/modded-nanogpt).
    rope_dims: int = 0
    mlp_only_layers: list = field(default_factory=list)
    has_embedding_norm: bool = False
    has_input_mix: bool = False
    has_skips: bool = False
    value_embeddings: int = 0

    def resolved(self):
        config = ModelConfig(**{**asdict(self), "cap": CapConfig(**asdict(self.cap))})
        config.kv_heads = self.kv_heads or self.heads
        config.head_dim = self.head_dim or self.width // self.heads
        default_ffn = -(-8 * self.width // 3 // 32) * 32 if self.mlp == "swiglu" else 4 * self.width
        config.ffn = self.ffn or default_ffn
        return config

    def json(self):
        """Returns all fields, but those of the speed run's parts only if one is set."""
        fields = asdict(self)
        parts = ("rope_dims", "mlp_only_layers", "has_embedding_norm", "has_input_mix", "has_skips", "value_embeddings")
        if not any(fields[name] for name in parts):
            for name in parts:
                del fields[name]
        return fields

    def value_table(self, layer):
        """Returns the table of value embeddings of a block: the first n and the last n blocks have tables 0 to n - 1."""
        n, rest = self.value_embeddings, self.layers - self.value_embeddings
        return layer if layer < n else layer - rest if layer >= rest else None


class Norm(nn.Module):
    """LayerNorm, RMSNorm, or RMSNorm without a weight; x (..., size)."""

    def __init__(self, config, size=None):
        super().__init__()
        self.kind, self.eps, self.size = config.norm, config.norm_eps, size or config.width
        has_weight = self.kind != "rms_norm_weightless"
        self.weight = nn.Parameter(torch.ones(self.size)) if has_weight else None
        has_bias = self.kind == "layer_norm" and config.has_bias
        self.bias = nn.Parameter(torch.zeros(self.size)) if has_bias else None

    def forward(self, x):
        if self.kind == "layer_norm":
            return F.layer_norm(x, (self.size,), self.weight, self.bias, self.eps)
        return F.rms_norm(x, (self.size,), self.weight, self.eps)


def rope_tables(context, head_dim, theta, dtype=torch.float32):
    """Returns cos, sin (T, D/2). Position t rotates the pair (x[i], x[i + D/2]) by t * theta^(-2i/D)."""
    frequencies = theta ** (-torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim)
    angles = torch.arange(context, dtype=torch.float64)[:, None] * frequencies
    return angles.cos().to(dtype), angles.sin().to(dtype)


def rope(x, cos, sin):
    """Rotates the two halves of the first channels of x (B, H, T, D), as many as the tables (T, R/2) are for."""
    half = cos.shape[-1]
    low, high, rest = x.split((half, half, x.shape[-1] - 2 * half), dim=-1)
    return torch.cat((low * cos - high * sin, high * cos + low * sin, rest), dim=-1).to(x.dtype)


def scalar(value):
    return nn.Parameter(torch.tensor([value]))


class Attention(nn.Module):
    def __init__(self, config, layer=0):
        super().__init__()
        self.config = config
        if config.value_embeddings:
            self.value_own = scalar(0.5)
            if config.value_table(layer) is not None:
                self.value_table = scalar(0.5)
        out_width = config.heads * config.head_dim
        self.qkv = nn.Linear(config.width, out_width + 2 * config.kv_heads * config.head_dim, bias=config.has_bias)
        self.proj = nn.Linear(out_width, config.width, bias=config.has_bias)

    def forward(self, x, tables, values=None):  # x (B, T, C), values (B, T, K D)
        c = self.config
        B, T, _ = x.shape
        q, k, v = self.qkv(x).split([n * c.head_dim for n in (c.heads, c.kv_heads, c.kv_heads)], dim=2)
        if c.value_embeddings:
            v = self.value_own * v if values is None else self.value_own * v + self.value_table * values
        q, k, v = (y.view(B, T, -1, c.head_dim).transpose(1, 2) for y in (q, k, v))  # (B, H or K, T, D)
        if c.has_qk_norm:
            q, k = (F.rms_norm(y, (c.head_dim,), None, c.norm_eps) for y in (q, k))
        if tables is not None:
            q, k = rope(q, *tables), rope(k, *tables)
        dropout = c.dropout if self.training else 0.0
        shares_kv = c.kv_heads != c.heads
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=True, enable_gqa=shares_kv)
        y = y.transpose(1, 2).reshape(B, T, c.heads * c.head_dim)
        return F.dropout(self.proj(y), c.dropout, self.training)


class Mlp(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        in_width = 2 * config.ffn if config.mlp == "swiglu" else config.ffn
        self.up = nn.Linear(config.width, in_width, bias=config.has_bias)  # SwiGLU: gate | up
        self.down = nn.Linear(config.ffn, config.width, bias=config.has_bias)

    def forward(self, x):
        kind, h = self.config.mlp, self.up(x)
        if kind == "swiglu":
            gate, up = h.chunk(2, dim=-1)
            h = F.silu(gate) * up
        elif kind == "relu2":
            h = F.relu(h).square()
        else:
            h = F.gelu(h, approximate="tanh" if kind == "gelu_tanh" else "none")
        return F.dropout(self.down(h), self.config.dropout, self.training)


class Block(nn.Module):
    def __init__(self, config, layer=0):
        super().__init__()
        self.has_attention = layer not in config.mlp_only_layers
        if config.has_skips and layer >= config.layers - config.layers // 2:
            self.mix_skip = scalar(1.0)
        if config.has_input_mix:
            self.mix_stream, self.mix_input = scalar(1.0), scalar(0.0)
        if self.has_attention:
            self.norm1, self.attn = Norm(config), Attention(config, layer)
        self.norm2, self.mlp = Norm(config), Mlp(config)

    def forward(self, x, tables, first=None, skip=None, values=None):
        if hasattr(self, "mix_skip"):
            x = x + self.mix_skip * skip
        if hasattr(self, "mix_input"):
            x = self.mix_stream * x + self.mix_input * first
        if self.has_attention:
            x = x + self.attn(self.norm1(x), tables, values)
        return x + self.mlp(self.norm2(x))


class Model(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config = config.resolved()
        self.embedding = nn.Embedding(config.vocab, config.width)
        learned = config.positions == "learned"
        self.positions = nn.Embedding(config.context, config.width) if learned else None
        if config.value_embeddings:
            self.value_embeddings = nn.ModuleList(
                nn.Embedding(config.vocab, config.kv_heads * config.head_dim) for _ in range(config.value_embeddings))
        if config.has_embedding_norm:
            self.embedding_norm = Norm(config)
        self.blocks = nn.ModuleList(Block(config, layer) for layer in range(config.layers))
        self.norm = Norm(config)
        self.head = nn.Linear(config.width, config.vocab, bias=False)
        if config.is_tied:
            self.head.weight = self.embedding.weight
        if not learned:
            for name, table in zip(("cos", "sin"), rope_tables(config.context, config.rope_dims or config.head_dim, config.rope_theta)):
                self.register_buffer(name, table, persistent=False)
        self.initialise()

    def initialise(self):
        """Sets every matrix and table to N(0, init_std), biases to 0 and norm weights to 1. The projections into the
        residual stream are scaled by 1/sqrt(2 layers) (GPT-2), or are zero, like an untied head (speed run)."""
        c = self.config
        residual_std = {"normal": c.init_std, "scaled": c.init_std / math.sqrt(2 * c.layers), "zero": 0.0}
        for name, p in self.named_parameters():
            if p.dim() < 2:
                nn.init.zeros_(p) if name.endswith(".bias") else nn.init.ones_(p)
            elif name.endswith(("attn.proj.weight", "mlp.down.weight")):
                nn.init.normal_(p, 0.0, residual_std[c.projection_init])
            elif name == "head.weight" and c.projection_init == "zero":
                nn.init.zeros_(p)
            else:
                nn.init.normal_(p, 0.0, c.init_std)

    def hidden(self, tokens):  # tokens (B, T) -> (B, T, C), the last block's output
        T = tokens.shape[1]
        x = self.embedding(tokens)
        if self.positions is not None:
            x = x + self.positions.weight[:T]
        x = F.dropout(x, self.config.dropout, self.training)
        tables = None if self.positions is not None else (self.cos[:T], self.sin[:T])
        c = self.config
        if c.has_embedding_norm:
            x = self.embedding_norm(x)
        values = [table(tokens) for table in self.value_embeddings] if c.value_embeddings else []
        first, outputs = x, []
        for layer, block in enumerate(self.blocks):
            skip = outputs[c.layers - 1 - layer] if hasattr(block, "mix_skip") else None
            table = c.value_table(layer)
            x = block(x, tables, first, skip, None if table is None else values[table])
            outputs.append(x)
        return x

    def project(self, x):  # x (B, T, C) -> logits (B, T, V)
        z, cap = self.head(self.norm(x)), self.config.cap
        if cap.kind == "tanh":
            return cap.a * torch.tanh(z.float() / cap.a if z.dtype == torch.bfloat16 else z / cap.a)
        if cap.kind == "sigmoid":
            z = z.float() if z.dtype == torch.bfloat16 else z
            return cap.a * torch.sigmoid((z + cap.b) / cap.c)
        return z

    def logits(self, tokens):  # tokens (B, T) -> (B, T, V)
        return self.project(self.hidden(tokens))

    def loss(self, x, targets):
        z = self.project(x)
        return F.cross_entropy(z.view(-1, z.size(-1)), targets.reshape(-1), ignore_index=IGNORE)

    def forward(self, tokens, targets):
        """Returns the mean loss over the targets that are not IGNORE."""
        return self.loss(self.hidden(tokens), targets)


def adamw(model, lr, betas, weight_decay, eps=1e-8, **implementation):
    """Returns torch.optim.AdamW with weight decay on tensors of two dims or more (tables too) and on no others."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in parameters if p.dim() >= 2], "weight_decay": weight_decay},
        {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW([g for g in groups if g["params"]], lr=lr, betas=betas, eps=eps, **implementation)


def schedule(step, warmup_steps, decay_steps, floor):
    """Returns the factor of the peak learning rate at 0-based `step`: a linear warm-up that starts above 0, then a
    cosine down to `floor` at decay_steps, constant afterwards."""
    if step < warmup_steps:
        return (step + 1) / (warmup_steps + 1)
    if step > decay_steps:
        return floor
    progress = (step - warmup_steps) / (decay_steps - warmup_steps)
    return floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * progress))


def hf_tensors(config, tensors):
    """Converts {name: tensor} from this module's parameter names to Hugging Face names and layouts; a subset is fine.
    Models with learned positions get GPT-2's names (matrices [in, out]), models with RoPE LLaMA's ([out, in]). An MLP
    without a gate has only up_proj and down_proj, a weightless norm has no tensor, and a tied head is left out."""
    convert = _gpt2_tensors if config.positions == "learned" else _llama_tensors
    out = {}
    for name, value in tensors.items():
        if name == "head.weight" and config.is_tied:
            continue
        for hf_name, part in convert(config, name.split("."), value):
            out[hf_name] = part.detach().contiguous().clone()
    return out


def _gpt2_tensors(config, path, value):
    top = {"embedding": "transformer.wte", "positions": "transformer.wpe", "norm": "transformer.ln_f",
           "head": "lm_head"}
    if path[0] != "blocks":
        return [(f"{top[path[0]]}.{path[-1]}", value)]
    inner = {"norm1": "ln_1", "norm2": "ln_2", "attn.qkv": "attn.c_attn", "attn.proj": "attn.c_proj",
             "mlp.up": "mlp.c_fc", "mlp.down": "mlp.c_proj"}[".".join(path[2:-1])]
    return [(f"transformer.h.{path[1]}.{inner}.{path[-1]}", value.t() if value.dim() == 2 else value)]


def _llama_tensors(config, path, value):
    top = {"embedding": "model.embed_tokens", "norm": "model.norm", "head": "lm_head"}
    if path[0] == "value_embeddings":
        return [("model." + ".".join(path), value)]
    if path[0] != "blocks":
        return [(f"{top[path[0]]}.{path[-1]}", value)]
    scalars = {"mix_skip": "mix.skip", "mix_stream": "mix.stream", "mix_input": "mix.input",
               "value_own": "self_attn.value_mix.own", "value_table": "self_attn.value_mix.table"}
    if path[-1] in scalars:
        return [(f"model.layers.{path[1]}.{scalars[path[-1]]}", value)]
    inner, kind = ".".join(path[2:-1]), path[-1]
    if inner == "attn.qkv":
        sizes = [n * config.head_dim for n in (config.heads, config.kv_heads, config.kv_heads)]
        parts = list(zip((f"self_attn.{x}_proj" for x in "qkv"), value.split(sizes)))
    elif inner == "mlp.up" and config.mlp == "swiglu":
        parts = list(zip(("mlp.gate_proj", "mlp.up_proj"), value.chunk(2)))
    else:
        parts = [({"norm1": "input_layernorm", "norm2": "post_attention_layernorm", "attn.proj": "self_attn.o_proj",
                   "mlp.up": "mlp.up_proj", "mlp.down": "mlp.down_proj"}[inner], value)]
    return [(f"model.layers.{path[1]}.{hf}.{kind}", part) for hf, part in parts]


@torch.no_grad()
def load_hf(model, state):
    """The inverse of hf_tensors: fills `model` from Hugging Face tensors. Raises KeyError if one is missing."""
    for name, p in model.named_parameters():  # a tied table is listed once, as embedding.weight
        if name == "head.weight" and model.config.is_tied:
            continue
        names = [hf for hf, _ in _parts(model.config, name, p)]
        parts = [state[hf] for hf in names]
        if model.config.positions == "learned" and p.dim() == 2 and name.startswith("blocks"):
            parts = [part.t() for part in parts]
        p.copy_(torch.cat(parts) if len(parts) > 1 else parts[0])


def _parts(config, name, value):
    convert = _gpt2_tensors if config.positions == "learned" else _llama_tensors
    return convert(config, name.split("."), value)
