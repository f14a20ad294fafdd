"""The network: a llama of a few million parameters in plain PyTorch, with a copy circuit written into its first weights.

Start at Network. What always holds: RMSNorm, interleaved RoPE (ggml's NORM, candle's `rope_i`), SwiGLU, tied embeddings, no
biases, so the weights go to GGUF as they are. The copy circuit is only a beginning: everything stays trainable. It saved
the ten minutes that copying took to emerge by itself (design/measurements.md, "Training a tiny model").
"""

import math
from dataclasses import asdict, dataclass

import torch
from torch import nn
from torch.nn import functional

HEAD = 32
ROPE_BASE = 10000.0
EPSILON = 1e-5


@dataclass
class Shape:
    """Sizes. Rows must be multiples of 32 for Q8_0."""

    vocabulary: int
    width: int = 256
    layers: int = 6
    inner: int = 704
    context: int = 1280

    def saved(self):
        return asdict(self)


class Norm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        x = x.float()
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPSILON) * self.weight


def turns(length):
    """RoPE's angles as complex numbers, `[length, 1, HEAD / 2]`."""
    inverse = ROPE_BASE ** (-torch.arange(0, HEAD, 2).float() / HEAD)
    angles = torch.arange(length).float()[:, None, None] * inverse
    return torch.polar(torch.ones_like(angles), angles)


def rotate(x, turned):
    """RoPE over pairs (0, 1), (2, 3) and so on: as complex numbers, which is three times as fast here as even and odd apart."""
    pairs = torch.view_as_complex(x.float().unflatten(-1, (HEAD // 2, 2)))
    return torch.view_as_real(pairs * turned).flatten(-2)


class Block(nn.Module):
    def __init__(self, shape):
        super().__init__()
        width, inner = shape.width, shape.inner
        self.heads = width // HEAD
        self.attn_norm, self.ffn_norm = Norm(width), Norm(width)
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            setattr(self, name, nn.Linear(width, width, bias=False))
        self.ffn_gate, self.ffn_up = nn.Linear(width, inner, bias=False), nn.Linear(width, inner, bias=False)
        self.ffn_down = nn.Linear(inner, width, bias=False)

    def split(self, x):
        return x.view(x.shape[0], x.shape[1], self.heads, HEAD)

    def forward(self, x, mask, turned, past=None, asked=None):
        """`past` is a list of this layer's keys and values so far; it is added to. `asked`: the places whose output is wanted,
        where not all are."""
        batch, length, width = x.shape
        h = self.attn_norm(x)
        v = self.split(self.attn_v(h)).transpose(1, 2)
        # Scaled here, where it is far less than the scores.
        q = rotate(self.split(self.attn_q(h)), turned * HEAD ** -.5).to(v.dtype).transpose(1, 2)
        k = rotate(self.split(self.attn_k(h)), turned).to(v.dtype).transpose(1, 2)
        if past is not None:
            if past:
                k, v = torch.cat((past[0], k), 2), torch.cat((past[1], v), 2)
            past[:] = [k, v]
        # All in bf16 where it is trained: passes over the scores cost more than all matrices of a layer.
        attended = (q @ k.transpose(-1, -2) + mask.to(v.dtype)).softmax(-1) @ v
        attended = attended.transpose(1, 2).reshape(batch, length, width)
        if asked is not None:
            x, attended = x[asked], attended[asked]
        x = x + self.attn_output(attended).float()
        h = self.ffn_norm(x)
        gate = self.ffn_gate(h)
        # SiLU, in two steps: torch's own takes twice as long in bf16, and its gradient more.
        return x + self.ffn_down(gate * gate.sigmoid() * self.ffn_up(h)).float()


class Network(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.shape = shape
        self.token_embd = nn.Embedding(shape.vocabulary, shape.width)
        self.blk = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.output_norm = Norm(shape.width)
        self.register_buffer("turned", turns(shape.context), persistent=False)
        self.begin()

    @torch.no_grad()
    def begin(self):
        width, layers = self.shape.width, self.shape.layers
        for name, weights in self.named_parameters():
            if weights.dim() != 2:
                continue
            scale = .02 if name.startswith("token_embd") else width ** -.5
            if name.endswith(("attn_output.weight", "ffn_down.weight")):
                scale *= (2 * layers) ** -.5
            nn.init.normal_(weights, 0, scale)
        self.write_copy_circuit()

    @torch.no_grad()
    def write_copy_circuit(self):
        """In layer 0 two heads look at the token before and write it into a subspace; in layer 1 four heads look for places
        whose token before is the current one, and put the token that stands there forward. Dimension 0 is a constant
        that queries for "the place before" are made of."""
        width = self.shape.width
        embedding = self.token_embd.weight
        embedding[:, 0] = embedding[:, 1:].norm(dim=1).mean()
        basis = torch.linalg.qr(torch.randn(width - 1, width - 1))[0]
        rows = torch.cat([torch.zeros(width - 1, 1), basis], 1)
        before = rows[64:128].t().clone()
        values = [rows[0:32], rows[32:64], rows[128:160], rows[width - 33:width - 1]]
        for block in self.blk:
            block.attn_output.weight *= .05
            block.ffn_down.weight *= .05
        first, second = self.blk[0], self.blk[1]
        inverse = [ROPE_BASE ** (-2 * nth / HEAD) for nth in range(4)]
        for head in range(2):
            own = slice(HEAD * head, HEAD * head + HEAD)
            first.attn_q.weight[own] *= .1
            first.attn_k.weight[own] *= .1
            for nth, turn in enumerate(inverse):
                at = HEAD * head + 2 * nth
                first.attn_q.weight[at, 0] = .66
                first.attn_k.weight[at, 0] = .66 * math.cos(turn)
                first.attn_k.weight[at + 1, 0] = .66 * math.sin(turn)
            first.attn_v.weight[own] = rows[own]
            first.attn_output.weight[:, own] = .08 * before[:, own]
        for head in range(4):
            own = slice(HEAD * head, HEAD * head + HEAD)
            # The slow half of RoPE's pairs hardly turns over a prompt, so content is matched there.
            part, slow = slice(16 * head, 16 * head + 16), slice(HEAD * head + 16, HEAD * head + HEAD)
            second.attn_q.weight[own] *= .1
            second.attn_k.weight[own] *= .1
            second.attn_q.weight[slow] = 2. * rows[part]
            second.attn_k.weight[slow] = 2. * before[:, part].t()
            second.attn_v.weight[own] = values[head]
            second.attn_output.weight[:, own] = .12 * values[head].t()

    def hidden(self, ids, asked):
        """The last layer's output at the places of whole sequences that are asked for; padding at their ends does no harm under
        the causal mask."""
        length = ids.shape[1]
        mask = torch.full((length, length), -1e9, device=ids.device).triu(1)
        x = self.token_embd(ids).float()
        for block in self.blk[:-1]:
            x = block(x, mask, self.turned[:length])
        return self.output_norm(self.blk[-1](x, mask, self.turned[:length], asked=asked))

    def logits(self, hidden):
        return functional.linear(hidden, self.token_embd.weight)

    @torch.no_grad()
    def step(self, ids, past):
        """Logits after the last of some new ids, for each row; `past` holds what came before, a list per layer."""
        seen = past[0][0].shape[2] if past[0] else 0
        length = ids.shape[1]
        mask = torch.zeros(length, seen + length)
        mask[:, seen:] = torch.full((length, length), -1e9).triu(1)
        x = self.token_embd(ids).float()
        for block, of_layer in zip(self.blk, past):
            x = block(x, mask, self.turned[seen:seen + length], of_layer)
        return self.logits(self.output_norm(x[:, -1]))
