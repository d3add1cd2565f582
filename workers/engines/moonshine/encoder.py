"""Moonshine's encoder: 16 kHz samples [n] -> hidden states [frames, 288], a frame for every 384 samples.

Theory. Three convolutions (127 samples every 64; 7 rows every 3; 3 rows every 2) make the frames, six transformer
layers over all of them follow (Jeffries et al. 2024, "Moonshine"). Between the first two convolutions stands a group
norm over the whole audio, which ties every value to all others; but it is affine, and so is the second convolution.
So with m and s the mean and deviation of the first one's output x

    conv2(norm(x)) = (W·g * x) / s + bias + W * b - (m / s) · sum(W·g)

and the costly part, W·g * x, is the same however much audio follows. It is computed in blocks of 32 rows, which a
soft cache remembers by their samples: as an utterance grows, only its newest block is new. A whole block's shape is
always the same, so its values are too, remembered or not; the last one, not whole yet, is made each time.

The layers look both ways in time, so every new sample changes every frame. Where that much exactness is not needed (for
anchors and partials, and for the context of a final), the frames up to 0.6 s before a *cut* stay as they were when the
audio ended there: only those after them are computed, and attend to all. A run up to a cut goes on from that up to the
cut before in the same way, but from 2.5 s before it. The result is a function of samples and cuts alone; the run up to
the last cut is remembered, or made again from cut to cut.
"""

from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from workers.engines.moonshine.layers import (
    HEAD_WIDTH,
    HEADS,
    WIDTH,
    Linear,
    Matrix,
    Rotations,
    SelfAttended,
    compiled,
    heads_joined,
    layer_norm,
)
from workers.engines.moonshine.weights import F32, Weights

LAYERS = 6
WIDTH2 = 2 * WIDTH  # of the second convolution's output
# Window and stride of each convolution, in what comes into it.
WINDOW1, STRIDE1 = 127, 64
WINDOW2, STRIDE2 = 7, 3
WINDOW3, STRIDE3 = 3, 2
# A block is 32 rows of the second convolution. It needs 100 rows of the first; two more may end the audio unused,
# but the norm counts them.
BLOCK = 32
BLOCK_ROWS = (BLOCK - 1) * STRIDE2 + WINDOW2 + STRIDE2 - 1
BLOCK_HOP = BLOCK * STRIDE2 * STRIDE1
BLOCK_SAMPLES = (BLOCK_ROWS - 1) * STRIDE1 + WINDOW1
# Less audio has no frame at all.
LEAST = ((WINDOW3 - 1) * STRIDE2 + WINDOW2 - 1) * STRIDE1 + WINDOW1
# Blocks remembered: 100 KB and 0.38 s of audio each.
REMEMBERED_BLOCKS = 640
EPSILON = 1e-5
# Frames before a cut that are computed again: 0.6 s for what follows the last one, 2.5 s from cut to cut. There what stays
# as it was stays for good, and anchors agree more easily than they should (ops/decisions/0004).
AGAIN, AGAIN_AT_CUT = 26, 104
# Frames of runs remembered: 14 KB each, two minutes in all.
REMEMBERED_FRAMES = 5_000


class Block(NamedTuple):
    rows: Tensor  # W·g * x [32, 576]; fewer at the end of the audio
    # of x [102, or fewer], up to and with each row: the sum, and the sum of squares
    sums: Tensor
    squares: Tensor


class Run(NamedTuple):
    attended: list[tuple[Tensor, Tensor]]  # keys and values [heads, frames, width] of each layer
    hidden: Tensor  # [frames, 288]


NOTHING = Run([(torch.empty(HEADS, 0, HEAD_WIDTH),) * 2] * LAYERS, torch.empty(0, WIDTH))


class Encoder:
    """Weights, and soft caches. For one thread at a time."""

    def __init__(self, weights: Weights) -> None:
        gain, shift = weights.named("onnx::Mul_"), weights.named("onnx::Add_")
        conv2, conv3 = weights.named("conv2.weight"), weights.named("conv3.weight")
        self._conv1 = torch.from_numpy(weights.named("conv1.weight")[:, 0])
        self._conv2 = _flat(conv2 * gain[None])
        self._conv2_sum = self._conv2.sum(1)
        self._bias2 = torch.from_numpy(weights.named("conv2.bias") + (conv2 * shift[None]).sum((1, 2)))
        self._conv3, self._bias3 = _flat(conv3), torch.from_numpy(weights.named("conv3.bias"))
        self._layers = compiled(_Layers(weights))
        self._rotations = Rotations()
        self._blocks: OrderedDict[bytes, Block] = OrderedDict()
        self._runs: OrderedDict[tuple[tuple[int, ...], bytes], Run] = OrderedDict()
        self._run_frames = 0

    def __call__(self, samples: F32, cuts: Sequence[int]) -> Tensor:
        """At least LEAST samples, also before each of the cuts, which ascend."""
        earlier = self._run_up_to(samples, cuts) if cuts else NOTHING
        if cuts and cuts[-1] == len(samples):
            return earlier.hidden
        return self._run(samples, earlier, AGAIN).hidden

    def _run_up_to(self, samples: F32, cuts: Sequence[int]) -> Run:
        key = tuple(cuts), samples[: cuts[-1]].tobytes()
        if key not in self._runs:
            earlier = self._run_up_to(samples, cuts[:-1]) if len(cuts) > 1 else NOTHING
            self._runs[key] = self._run(samples[: cuts[-1]], earlier, AGAIN_AT_CUT)
            self._run_frames += len(self._runs[key].hidden)
            while self._run_frames > REMEMBERED_FRAMES and len(self._runs) > 1:
                _, oldest = self._runs.popitem(last=False)
                self._run_frames -= len(oldest.hidden)
        return self._runs[key]

    def _run(self, samples: F32, earlier: Run, again: int) -> Run:
        kept = max(len(earlier.hidden) - again, 0)
        x = self._frames(samples, kept)
        turns = self._rotations.at(kept, kept + len(x))
        hidden, attended = self._layers(x, kept, earlier.attended, turns)
        return Run(attended, torch.cat([earlier.hidden[:kept], hidden]))

    def _frames(self, samples: F32, first: int) -> Tensor:
        """From that frame on."""
        rows1 = (len(samples) - WINDOW1) // STRIDE1 + 1
        rows2 = (rows1 - WINDOW2) // STRIDE2 + 1
        rows3 = (rows2 - WINDOW3) // STRIDE3 + 1
        blocks = [
            self._block(samples[at : at + BLOCK_SAMPLES])
            for at in range(0, rows2 * STRIDE2 * STRIDE1, BLOCK_HOP)
        ]
        mean, deviation = _moments(blocks, rows1)
        x = torch.cat([block.rows for block in blocks])[first * STRIDE3 : rows2]
        x = functional.gelu(
            torch.add(self._bias2 - mean / deviation * self._conv2_sum, x, alpha=1 / deviation)
        )
        windows = x.as_strided((rows3 - first, WINDOW3 * WIDTH2), (STRIDE3 * WIDTH2, 1))
        return functional.gelu(functional.linear(windows, self._conv3, self._bias3))

    def _block(self, samples: F32) -> Block:
        if len(samples) < BLOCK_SAMPLES:
            return self._convolved(samples)
        key = samples.tobytes()
        if key not in self._blocks:
            self._blocks[key] = self._convolved(samples)
            if len(self._blocks) > REMEMBERED_BLOCKS:
                self._blocks.popitem(last=False)
        self._blocks.move_to_end(key)
        return self._blocks[key]

    def _convolved(self, samples: F32) -> Block:
        rows1 = (len(samples) - WINDOW1) // STRIDE1 + 1
        rows2 = (rows1 - WINDOW2) // STRIDE2 + 1
        windows = torch.from_numpy(samples).as_strided((rows1, WINDOW1), (STRIDE1, 1))
        x = torch.tanh(functional.linear(windows, self._conv1))
        rows = functional.linear(x.as_strided((rows2, WINDOW2 * WIDTH), (STRIDE2 * WIDTH, 1)), self._conv2)
        return Block(rows, _running(x), _running(x * x))


class _Layers(nn.Module):
    def __init__(self, weights: Weights) -> None:
        super().__init__()
        self.layers = nn.ModuleList(_Layer(weights, number) for number in range(LAYERS))
        self.norm = layer_norm(weights.named("layer_norm.weight"))

    def forward(
        self, x: Tensor, first: int, earlier: list[tuple[Tensor, Tensor]], turns: tuple[Tensor, Tensor]
    ) -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
        """Frames from number `first` on -> hidden states, and each layer's keys and values of all frames.

        `earlier` has the same for the frames before those, and more.
        """
        attended: list[tuple[Tensor, Tensor]] = []
        for number, layer in enumerate(self.layers):
            x, keys, values = layer(x, first, earlier[number], turns)
            attended.append((keys, values))
        return self.norm(x), attended


class _Layer(nn.Module):
    def __init__(self, weights: Weights, number: int) -> None:
        super().__init__()
        name = f"layers.{number}"
        self.norm1 = layer_norm(weights.named(f"{name}.input_layernorm.weight"))
        self.attention = SelfAttended(weights, f"/{name}/self_attn")
        self.joined = Linear([Matrix.of(weights, f"/{name}/self_attn/o_proj")])
        self.norm2 = layer_norm(weights.named(f"{name}.post_attention_layernorm.weight"))
        self.up, self.down = (
            Linear(
                [Matrix.of(weights, f"/{name}/mlp/{part}")],
                torch.from_numpy(weights.named(f"{name}.mlp.{part}.bias")),
            )
            for part in ("fc1", "fc2")
        )

    def forward(
        self, x: Tensor, first: int, earlier: tuple[Tensor, Tensor], turns: tuple[Tensor, Tensor]
    ) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = self.attention(self.norm1(x), turns)
        k = torch.cat([earlier[0][:, :first], k], 1)
        v = torch.cat([earlier[1][:, :first], v], 1)
        attended = functional.scaled_dot_product_attention(q[None], k[None], v[None], scale=1.0)[0]
        x = x + self.joined(heads_joined(attended))
        return x + self.down(functional.gelu(self.up(self.norm2(x)))), k, v


def _flat(kernel: F32) -> Tensor:
    """Kernel [out, in, window] -> matrix [out, window · in], for windows that lie row after row."""
    return torch.from_numpy(np.ascontiguousarray(kernel.transpose(0, 2, 1)).reshape(len(kernel), -1))


def _running(x: Tensor) -> Tensor:
    return x.sum(1, dtype=torch.double).cumsum(0)


def _moments(blocks: list[Block], rows: int) -> tuple[float, float]:
    """Mean and standard deviation of the first convolution's first so many rows."""
    own = BLOCK * STRIDE2
    last = rows - own * (len(blocks) - 1) - 1
    counts = [own - 1] * (len(blocks) - 1) + [last]
    total = sum(float(block.sums[n]) for block, n in zip(blocks, counts, strict=True))
    squares = sum(float(block.squares[n]) for block, n in zip(blocks, counts, strict=True))
    mean = total / (rows * WIDTH)
    return mean, float(np.sqrt(squares / (rows * WIDTH) - mean * mean + EPSILON))
