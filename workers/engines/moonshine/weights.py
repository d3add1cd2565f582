"""Weights out of an onnxruntime model file (.ort), which the runtime runs but does not hand out.

The file is a flatbuffer. The field numbers are those of onnxruntime's schema (core/flatbuffers/schema/ort.fbs, MIT),
where old numbers keep their meaning.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import flatbuffers.table
import numpy as np
import numpy.typing as npt
from flatbuffers import number_types

Array = npt.NDArray[np.generic]
F32 = npt.NDArray[np.float32]

# TensorDataType, as far as weights have them
_TYPES = {1: np.float32, 2: np.uint8, 3: np.int8, 6: np.int32, 7: np.int64}
_PRODUCTS = {"DynamicQuantizeMatMul", "MatMulIntegerToFloat"}
_QUANTIZED = "_quantized"


@dataclass(frozen=True, slots=True)
class Weights:
    """What a model file holds."""

    tensors: dict[str, Array] = field(default_factory=dict)
    # name of an 8-bit matrix, by the name of what it is multiplied into: "/layers.0/mlp/fc1"
    products: dict[str, str] = field(default_factory=dict)

    def named(self, prefix: str) -> F32:
        """The one float tensor whose name begins so."""
        (found,) = (
            t for name, t in self.tensors.items() if name.startswith(prefix) and t.dtype == np.float32
        )
        return np.array(found, np.float32)

    def matrix(self, name: str) -> tuple[Array, int, float]:
        """(stored uint8 values, zero point, scale) of an 8-bit tensor."""
        parts = (self.tensors[name + suffix] for suffix in (_QUANTIZED, "_zero_point", "_scale"))
        stored, zero, scale = parts
        return stored, int(zero), float(scale)


def read(path: Path) -> Weights:
    """Every initializer of a model's graph and of the graphs inside it."""
    raw = path.read_bytes()
    session = _Table(raw, struct.unpack_from("<I", raw)[0])
    weights = Weights()
    for graph in _graphs(session.child(1).child(7)):
        for tensor in graph.children(0):
            weights.tensors[tensor.text(0)] = _array(tensor)
        for node in graph.children(2):
            if node.text(5) in _PRODUCTS:
                source = next(name for name in node.texts(8)[1:] if name.endswith(_QUANTIZED))
                target = (
                    node.texts(9)[0].removesuffix("_output_0").removesuffix("/MatMul").removesuffix("/Add")
                )
                weights.products[target] = source.removesuffix(_QUANTIZED)
    return weights


class _Table:
    """A flatbuffer table, its fields by number."""

    def __init__(self, raw: bytes, position: int) -> None:
        self._raw = raw
        self._table = flatbuffers.table.Table(raw, position)

    def child(self, number: int) -> "_Table":
        return _Table(self._raw, self._table.Indirect(self._place(number)))

    def has(self, number: int) -> bool:
        return bool(self._table.Offset(4 + 2 * number))

    def children(self, number: int) -> list["_Table"]:
        return [_Table(self._raw, self._table.Indirect(place)) for place in self._elements(number)]

    def text(self, number: int) -> str:
        return self._string(self._place(number)) if self.has(number) else ""

    def texts(self, number: int) -> list[str]:
        return [self._string(place) for place in self._elements(number)]

    def number(self, number: int) -> int:
        return int(self._table.Get(number_types.Int32Flags, self._place(number))) if self.has(number) else 0

    def array(self, number: int, kind: type[np.generic]) -> Array:
        if not self.has(number):
            return np.zeros(0, kind)
        offset = self._table.Offset(4 + 2 * number)
        return np.frombuffer(self._raw, kind, self._table.VectorLen(offset), self._table.Vector(offset))

    def _place(self, number: int) -> int:
        return int(self._table.Offset(4 + 2 * number) + self._table.Pos)

    def _string(self, place: int) -> str:
        return bytes(self._table.String(place)).decode()

    def _elements(self, number: int) -> list[int]:
        if not self.has(number):
            return []
        offset = self._table.Offset(4 + 2 * number)
        first = self._table.Vector(offset)
        return [first + 4 * index for index in range(self._table.VectorLen(offset))]


def _graphs(graph: _Table) -> Iterator[_Table]:
    yield graph
    for node in graph.children(2):
        for attribute in node.children(10):
            if attribute.has(7):
                yield from _graphs(attribute.child(7))


def _array(tensor: _Table) -> Array:
    kind = _TYPES[tensor.number(3)]
    shape = [int(size) for size in tensor.array(2, np.int64)]
    return np.frombuffer(tensor.array(4, np.uint8).tobytes(), kind).reshape(shape)
