"""Moonshine's decoder: tokens and the encoder's hidden states -> the probability of each next token.

Theory. Six layers of self-attention over the tokens, cross-attention to the hidden states, and a gated feed-forward.
Reading the weights takes nearly all the time of a call (10 MB of layers and 9 MB of vocabulary, from memory), so many
tokens in one call cost little more than one: that is why guesses pay.
"""

from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional

from workers.engines.moonshine.layers import (
    ATTENTION_SCALE,
    HEAD_WIDTH,
    HEADS,
    Linear,
    Matrix,
    Rotations,
    SelfAttended,
    compiled,
    heads_joined,
    layer_norm,
)
from workers.engines.moonshine.weights import Weights

LAYERS = 6
EMBEDDING = "model.decoder.embed_tokens.weight_merged_0"


@dataclass(slots=True)
class Past:
    """Keys and values of one search."""

    # of the hidden states, for each layer: keys [heads, width, frames], values [heads, frames, width]
    cross: list[tuple[Tensor, Tensor]]
    # of the tokens so far, for each layer: [2, heads, room, width]
    own: Tensor
    tokens: int = 0  # that are valid; set it back to forget the newest


class Decoder:
    """Weights only."""

    def __init__(self, weights: Weights) -> None:
        stored, zero, scale = weights.matrix(EMBEDDING)
        self._embedding = (torch.from_numpy(stored.astype("float32")) - zero) * scale
        self._layers = compiled(_Layers(weights))
        norm = layer_norm(weights.named("model.decoder.norm.weight"))
        self._vocabulary = compiled(nn.Sequential(norm, Linear([Matrix.of(weights, "logits")])))
        self._heard = [
            Linear([Matrix.of(weights, f"{_name(number)}/encoder_attn/{part}_proj") for part in "kv"])
            for number in range(LAYERS)
        ]
        self._rotations = Rotations()

    def begin(self, hidden: Tensor, room: int) -> Past:
        """A search with room for so many tokens, BOS included."""
        own = torch.empty(LAYERS, 2, HEADS, room, HEAD_WIDTH)
        return Past([_keys_values(heard(hidden)) for heard in self._heard], own)

    def __call__(self, past: Past, tokens: list[int], *, last: int) -> Tensor:
        """Logits [last, 32768] after each of the last so many of these tokens, which `past` holds from now on."""
        first, past.tokens = past.tokens, past.tokens + len(tokens)
        turns = self._rotations.at(first, past.tokens)
        x = self._layers(self._embedding[tokens], first, past.cross, past.own, turns)
        logits: Tensor = self._vocabulary(x[-last:])
        return logits


def _name(number: int) -> str:
    return f"/model/decoder/layers.{number}"


def _keys_values(heard: Tensor) -> tuple[Tensor, Tensor]:
    parts = heard.view(len(heard), 2, HEADS, HEAD_WIDTH).permute(1, 2, 0, 3).contiguous()
    return parts[0].transpose(1, 2), parts[1]


class _Layers(nn.Module):
    def __init__(self, weights: Weights) -> None:
        super().__init__()
        self.layers = nn.ModuleList(_Layer(weights, number) for number in range(LAYERS))

    def forward(
        self,
        x: Tensor,
        first: int,
        cross: list[tuple[Tensor, Tensor]],
        own: Tensor,
        turns: tuple[Tensor, Tensor],
    ) -> Tensor:
        for number, layer in enumerate(self.layers):
            x = layer(x, first, cross[number], own[number], turns)
        return x


class _Layer(nn.Module):
    heads: Final = HEADS
    head_width: Final = HEAD_WIDTH
    gate: Final = 1152  # the feed-forward's upper half opens and closes its lower one

    def __init__(self, weights: Weights, number: int) -> None:
        super().__init__()
        name = _name(number)
        self.norm1, self.norm2, self.norm3 = (
            layer_norm(weights.named(f"model.decoder.layers.{number}.{norm}.weight"))
            for norm in ("input_layernorm", "post_attention_layernorm", "final_layernorm")
        )
        self.attention = SelfAttended(weights, f"{name}/self_attn")
        self.joined = Linear([Matrix.of(weights, f"{name}/self_attn/o_proj")])
        self.asking = Linear([Matrix.of(weights, f"{name}/encoder_attn/q_proj").times(ATTENTION_SCALE)])
        self.answered = Linear([Matrix.of(weights, f"{name}/encoder_attn/o_proj")])
        self.up, self.down = (
            Linear(
                [Matrix.of(weights, f"{name}/mlp/{part}")],
                torch.from_numpy(weights.named(f"model.decoder.layers.{number}.mlp.{part}.bias")),
            )
            for part in ("fc1", "fc2")
        )

    def forward(
        self,
        x: Tensor,
        first: int,
        cross: tuple[Tensor, Tensor],
        own: Tensor,
        turns: tuple[Tensor, Tensor],
    ) -> Tensor:
        last = first + x.shape[0]
        q, k, v = self.attention(self.norm1(x), turns)
        own[0, :, first:last] = k
        own[1, :, first:last] = v
        scores = torch.bmm(q, own[0, :, :last].transpose(1, 2))
        if x.shape[0] > 1:  # no token sees those after it
            scores += torch.full(scores.shape[1:], float("-inf")).triu(first + 1)
        x = x + self.joined(heads_joined(torch.bmm(scores.softmax(-1), own[1, :, :last])))
        asked = self.asking(self.norm2(x)).view(-1, self.heads, self.head_width).transpose(0, 1)
        keys, values = cross
        x = x + self.answered(heads_joined(torch.bmm(torch.bmm(asked, keys).softmax(-1), values)))
        up = self.up(self.norm3(x))
        down: Tensor = self.down(functional.silu(up[:, self.gate :]) * up[:, : self.gate])
        return x + down
