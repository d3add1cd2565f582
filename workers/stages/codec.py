"""Stage state to bytes and back: schema number, position, then the fields in order, nested dataclasses likewise.

The position (sample, utterance) has the same meaning in every schema: a worker that can't read the rest of a state,
in the middle of a rolling upgrade, starts a fresh one there. It loses the open utterance, never its place.
"""

from dataclasses import fields, is_dataclass
from typing import Any, NamedTuple, TypeVar, get_args, get_type_hints

from workers.wire import pack, unpack

S = TypeVar("S")


class Position(NamedTuple):
    sample: int = 0  # audio before this is done
    utterance: int = 0  # the last one opened


def dump(schema: int, position: Position, state: Any) -> bytes:
    return pack((schema, tuple(position), state))


def schema_of(blob: bytes) -> int:
    """The schema that a state was written by."""
    return int(unpack(blob)[0])


def load(schema: int, kind: type[S], blob: bytes) -> S | Position:
    """The state, or only its position when the bytes were written by another schema."""
    written, position, values = unpack(blob)
    return _build(kind, values) if written == schema else Position(*position)


def _build(kind: type[S], values: Any) -> S:
    hints = get_type_hints(kind)
    names = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    return kind(*(_field(hints[name], value) for name, value in zip(names, values, strict=True)))


def _field(hint: Any, value: Any) -> Any:
    """A nested dataclass, or an optional one, is built from its values; everything else is as it travelled."""
    nested = next((kind for kind in (hint, *get_args(hint)) if is_dataclass(kind)), None)
    return value if nested is None or value is None else _build(nested, value)  # type: ignore[arg-type]
