"""What encoder and decoder are made of: 8-bit matrices and rotary positions.

The modules are written in the part of Python that TorchScript compiles: a token is 200 small operations, and from Python
each costs more to call than to do (ops/decisions/0013).
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import torch
from torch import Tensor, nn

from workers.engines.moonshine.weights import F32, Weights

WIDTH, HEADS, HEAD_WIDTH = 288, 8, 36
# Rotary positions turn the first 32 of a head's 36 values, in pairs of neighbours.
ROTARY = 32
ATTENTION_SCALE = HEAD_WIDTH**-0.5


@dataclass(frozen=True, slots=True)
class Matrix:
    """Rows of 8-bit values: value = (stored - zero) * scale."""

    stored: Tensor  # int32 [rows, columns], 0 to 255
    zero: int
    scale: float

    @classmethod
    def of(cls, weights: Weights, product: str) -> "Matrix":
        """The matrix x is multiplied by in the named product, one row for each output."""
        stored, zero, scale = weights.matrix(weights.products[product])
        return cls(torch.from_numpy(stored.T.astype("int32")), zero, scale)

    def times(self, factor: float) -> "Matrix":
        return replace(self, scale=self.scale * factor)

    def neighbours_swapped(self) -> "Matrix":
        """Rows of each rotary pair changed over."""
        order = torch.arange(HEAD_WIDTH)
        order[:ROTARY] ^= 1
        heads = self.stored.view(HEADS, HEAD_WIDTH, -1)
        return replace(self, stored=heads[:, order].reshape(self.stored.shape))


class Linear(nn.Module):
    """x [n, columns] -> x times the rows of all parts [n, rows], plus bias: in 8 bits, by FBGEMM's kernels.

    x is quantised with one scale for the whole call, so that a row's result depends a little on the others.
    """

    def __init__(self, parts: Sequence[Matrix], bias: Tensor | None = None) -> None:
        super().__init__()
        values = torch.cat([(part.stored - part.zero) * part.scale for part in parts])
        sizes = torch.tensor([len(part.stored) for part in parts])
        scales = torch.tensor([part.scale for part in parts], dtype=torch.double).repeat_interleave(sizes)
        zeros = torch.tensor([part.zero - 128 for part in parts]).repeat_interleave(sizes)
        with warnings.catch_warnings():
            # Deprecated, but nothing that torch has instead is as fast without VNNI (ops/decisions/0013).
            warnings.filterwarnings("ignore", "torch.quantize_per_tensor", UserWarning)
            quantized = torch.quantize_per_channel(values, scales, zeros, 0, torch.qint8)
        self.packed = torch.ops.quantized.linear_prepack(quantized, bias)

    def forward(self, x: Tensor) -> Tensor:
        # Seven bits of x: with eight the AVX2 kernels overflow their 16-bit sums.
        product: Tensor = torch.ops.quantized.linear_dynamic(x, self.packed, reduce_range=True)
        return product


class SelfAttended(nn.Module):
    """x [n, 288] and what `Rotations.at` says -> rotated and scaled queries, rotated keys, values; each [heads, n, width].

    All by one product: q, k, q and k with their pairs changed over (what a rotation needs beside the plain ones), v.
    """

    heads: Final = HEADS
    head_width: Final = HEAD_WIDTH

    def __init__(self, weights: Weights, attention: str) -> None:
        super().__init__()
        q, k, v = (Matrix.of(weights, f"{attention}/{name}_proj") for name in "qkv")
        q = q.times(ATTENTION_SCALE)
        self.product = Linear([q, k, q.neighbours_swapped(), k.neighbours_swapped(), v])

    def forward(self, x: Tensor, turns: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        cos, sin = turns
        parts = self.product(x).view(x.shape[0], 5, self.heads, self.head_width)
        turned = torch.addcmul(parts[:, :2] * cos, parts[:, 2:4], sin).permute(1, 2, 0, 3)
        return turned[0], turned[1], parts[:, 4].transpose(0, 1)


class Rotations:
    """Rotary position embedding (Su et al. 2021, "RoFormer"), its interleaved form."""

    def __init__(self) -> None:
        self._cos, self._sin = _turns(1024)

    def at(self, first: int, last: int) -> tuple[Tensor, Tensor]:
        """Cosines and signed sines [last - first, 1, 1, width] of the positions from `first` to before `last`."""
        if last > len(self._cos):
            self._cos, self._sin = _turns(2 * last)
        return self._cos[first:last], self._sin[first:last]


def _turns(positions: int) -> tuple[Tensor, Tensor]:
    """What is not turned has cosine 1 and sine 0."""
    frequencies = 10_000.0 ** -(torch.arange(0, ROTARY, 2) / ROTARY)
    angles = torch.outer(torch.arange(positions).float(), frequencies).repeat_interleave(2, 1)
    cos, sin = torch.ones(positions, 1, 1, HEAD_WIDTH), torch.zeros(positions, 1, 1, HEAD_WIDTH)
    cos[..., :ROTARY] = angles.cos()[:, None, None]
    sin[..., :ROTARY] = angles.sin()[:, None, None]
    sin[..., 0:ROTARY:2] *= -1
    return cos, sin


def layer_norm(weight: F32) -> nn.LayerNorm:
    norm = nn.LayerNorm(WIDTH, bias=False)
    norm.weight = nn.Parameter(torch.from_numpy(weight), requires_grad=False)
    return norm


def heads_joined(x: Tensor) -> Tensor:
    """[heads, n, width] -> [n, heads · width]"""
    return x.transpose(0, 1).flatten(1)


def compiled(module: nn.Module) -> nn.Module:
    with warnings.catch_warnings():
        # Deprecated in favour of compilers that need a C++ toolchain on the user's machine.
        warnings.filterwarnings("ignore", "`torch.jit.script` is deprecated", DeprecationWarning)
        script: nn.Module = torch.jit.script(module.eval())
    return script
