"""What encoder and decoder are made of: 8-bit matrices and rotary positions."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from workers.engines.moonshine.weights import Weights

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
        """Rows of each rotary pair changed over: its product is what `Rotations.turn` needs beside the plain one."""
        order = torch.arange(HEAD_WIDTH)
        order[:ROTARY] ^= 1
        heads = self.stored.view(HEADS, HEAD_WIDTH, -1)
        return replace(self, stored=heads[:, order].reshape(self.stored.shape))


class Linear:
    """x [n, columns] -> x times the rows of all parts [n, rows], plus bias: in 8 bits, by FBGEMM's kernels.

    x is quantised with one scale for the whole call, so that a row's result depends a little on the others.
    """

    def __init__(self, parts: Sequence[Matrix], bias: Tensor | None = None) -> None:
        values = torch.cat([(part.stored - part.zero) * part.scale for part in parts])
        sizes = torch.tensor([len(part.stored) for part in parts])
        scales = torch.tensor([part.scale for part in parts], dtype=torch.double).repeat_interleave(sizes)
        zeros = torch.tensor([part.zero - 128 for part in parts]).repeat_interleave(sizes)
        with warnings.catch_warnings():
            # Deprecated, but nothing that torch has instead is as fast without VNNI (ops/decisions/0013).
            warnings.filterwarnings("ignore", "torch.quantize_per_tensor", UserWarning)
            quantized = torch.quantize_per_channel(values, scales, zeros, 0, torch.qint8)
        self._packed = torch.ops.quantized.linear_prepack(quantized, bias)

    def __call__(self, x: Tensor) -> Tensor:
        # Seven bits of x: with eight the AVX2 kernels overflow their 16-bit sums.
        product: Tensor = torch.ops.quantized.linear_dynamic(x, self._packed, reduce_range=True)
        return product


class Rotations:
    """Rotary position embedding (Su et al. 2021, "RoFormer"), its interleaved form."""

    def __init__(self) -> None:
        self._cos, self._sin = _turns(1024)

    def turn(self, x: Tensor, swapped: Tensor, first: int) -> Tensor:
        """Rows [n, …, heads, width] at positions first, first + 1, …; `swapped` has each pair's values changed over."""
        last = first + len(x)
        if last > len(self._cos):
            self._cos, self._sin = _turns(2 * last)
        return torch.addcmul(x * self._cos[first:last], swapped, self._sin[first:last])


def _turns(positions: int) -> tuple[Tensor, Tensor]:
    """Cosines and signed sines [positions, 1, 1, width]; what is not turned has 1 and 0."""
    frequencies = 10_000.0 ** -(torch.arange(0, ROTARY, 2) / ROTARY)
    angles = torch.outer(torch.arange(positions).float(), frequencies).repeat_interleave(2, 1)
    cos, sin = torch.ones(positions, 1, 1, HEAD_WIDTH), torch.zeros(positions, 1, 1, HEAD_WIDTH)
    cos[..., :ROTARY] = angles.cos()[:, None, None]
    sin[..., :ROTARY] = angles.sin()[:, None, None]
    sin[..., 0:ROTARY:2] *= -1
    return cos, sin


def queries_keys_values(weights: Weights, attention: str, scale: float) -> Linear:
    """One product for all self-attention needs: [q, k, q swapped, k swapped, v], q times `scale`."""
    q, k, v = (Matrix.of(weights, f"{attention}/{name}_proj") for name in "qkv")
    q = q.times(scale)
    return Linear([q, k, q.neighbours_swapped(), k.neighbours_swapped(), v])


def heads_apart(x: Tensor, rotations: Rotations, first: int) -> tuple[Tensor, Tensor, Tensor]:
    """Output of `queries_keys_values` [n, 5 · 288] -> rotated queries and keys, values; each [heads, n, width]."""
    parts = x.view(len(x), 5, HEADS, HEAD_WIDTH)
    turned = rotations.turn(parts[:, :2], parts[:, 2:4], first).permute(1, 2, 0, 3)
    return turned[0], turned[1], parts[:, 4].transpose(0, 1)


def heads_joined(x: Tensor) -> Tensor:
    """[heads, n, width] -> [n, 288]"""
    return x.transpose(0, 1).reshape(-1, WIDTH)
