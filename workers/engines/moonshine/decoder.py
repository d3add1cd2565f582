"""Moonshine's decoder: tokens and the encoder's hidden states -> the probability of each next token.

Theory. Six layers of self-attention over the tokens, cross-attention to the hidden states, and a gated feed-forward.
Reading the weights takes nearly all the time of a call (10 MB of layers and 9 MB of vocabulary, from memory), so many
tokens in one call cost little more than one: that is why guesses pay.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from workers.engines.moonshine.layers import (
    ATTENTION_SCALE,
    HEAD_WIDTH,
    HEADS,
    WIDTH,
    Linear,
    Matrix,
    Rotations,
    heads_apart,
    heads_joined,
    queries_keys_values,
)
from workers.engines.moonshine.weights import Weights

LAYERS = 6
GATE = 1152  # the feed-forward's upper half opens and closes its lower one
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
        self._layers = [_Layer(weights, number) for number in range(LAYERS)]
        self._norm = torch.from_numpy(weights.named("model.decoder.norm.weight"))
        self._vocabulary = Linear([Matrix.of(weights, "logits")])
        self._rotations = Rotations()

    def begin(self, hidden: Tensor, room: int) -> Past:
        """A search with room for so many tokens, BOS included."""
        own = torch.empty(LAYERS, 2, HEADS, room, HEAD_WIDTH)
        return Past([layer.cross(hidden) for layer in self._layers], own)

    def __call__(self, past: Past, tokens: list[int], *, last: int) -> Tensor:
        """Logits [last, 32768] after each of the last so many of these tokens, which `past` holds from now on."""
        x = self._embedding[tokens]
        for layer, cross, own in zip(self._layers, past.cross, past.own, strict=True):
            x = layer(x, past.tokens, cross, own, self._rotations)
        past.tokens += len(tokens)
        return self._vocabulary(functional.layer_norm(x[-last:], (WIDTH,), self._norm))


class _Layer:
    def __init__(self, weights: Weights, number: int) -> None:
        name = f"/model/decoder/layers.{number}"
        self._norm1, self._norm2, self._norm3 = (
            torch.from_numpy(weights.named(f"model.decoder.layers.{number}.{norm}.weight"))
            for norm in ("input_layernorm", "post_attention_layernorm", "final_layernorm")
        )
        self._attention = queries_keys_values(weights, f"{name}/self_attn", ATTENTION_SCALE)
        self._joined = Linear([Matrix.of(weights, f"{name}/self_attn/o_proj")])
        self._asking = Linear([Matrix.of(weights, f"{name}/encoder_attn/q_proj").times(ATTENTION_SCALE)])
        self._heard = Linear([Matrix.of(weights, f"{name}/encoder_attn/{part}_proj") for part in "kv"])
        self._answered = Linear([Matrix.of(weights, f"{name}/encoder_attn/o_proj")])
        self._up, self._down = (
            Linear(
                [Matrix.of(weights, f"{name}/mlp/{part}")],
                torch.from_numpy(weights.named(f"model.decoder.layers.{number}.mlp.{part}.bias")),
            )
            for part in ("fc1", "fc2")
        )

    def cross(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        parts = self._heard(hidden).view(len(hidden), 2, HEADS, HEAD_WIDTH).permute(1, 2, 0, 3).contiguous()
        return parts[0].transpose(1, 2), parts[1]

    def __call__(
        self, x: Tensor, first: int, cross: tuple[Tensor, Tensor], own: Tensor, rotations: Rotations
    ) -> Tensor:
        last = first + len(x)
        q, k, v = heads_apart(
            self._attention(functional.layer_norm(x, (WIDTH,), self._norm1)), rotations, first
        )
        own[0, :, first:last], own[1, :, first:last] = k, v
        scores = torch.bmm(q, own[0, :, :last].transpose(1, 2))
        if len(x) > 1:  # no token sees those after it
            scores += torch.full(scores.shape[1:], float("-inf")).triu(first + 1)
        x = x + self._joined(heads_joined(torch.bmm(scores.softmax(-1), own[1, :, :last])))
        asked = (
            self._asking(functional.layer_norm(x, (WIDTH,), self._norm2))
            .view(-1, HEADS, HEAD_WIDTH)
            .transpose(0, 1)
        )
        keys, values = cross
        x = x + self._answered(heads_joined(torch.bmm(torch.bmm(asked, keys).softmax(-1), values)))
        up = self._up(functional.layer_norm(x, (WIDTH,), self._norm3))
        return x + self._down(functional.silu(up[:, GATE:]) * up[:, :GATE])
