"""What travels between stages, and how: msgpack with arrays as raw bytes. The only place these bytes are parsed."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, TypeVar

import msgpack
import numpy as np
import numpy.typing as npt

SAMPLE_RATE = 16_000

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class AudioChunk:
    """Input of the frontend: 16 kHz mono s16le, or a control mark between chunks."""

    kind: str  # audio | gap | flush | end
    # audio: samples; gap: "start:end:reason:utterance", in samples, and the newest utterance told; flush: its id
    payload: bytes


@dataclass(frozen=True, slots=True)
class Opened:
    """Speech began: utterance `utterance` starts at sample `start` of the session."""

    utterance: int
    start: int


@dataclass(frozen=True, slots=True)
class Speech:
    """Samples of the open utterance, from absolute sample `start` on."""

    start: int
    pcm: bytes  # s16le


@dataclass(frozen=True, slots=True)
class Paused:
    """The utterance may end at sample `end`; if it does, `Closed` says the same. `voiced` as there."""

    end: int
    voiced: int


@dataclass(frozen=True, slots=True)
class Resumed:
    """It did not: speech goes on at this sample."""

    sample: int


@dataclass(frozen=True, slots=True)
class Closed:
    """The utterance ends at sample `end` (exclusive). `voiced` samples of it sounded like speech."""

    utterance: int
    end: int
    voiced: int


@dataclass(frozen=True, slots=True)
class Silent:
    """Nobody has spoken in samples [start, end), which is as long as the session wants to be told of."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Through:
    """All audio before this sample has been looked at."""

    sample: int


@dataclass(frozen=True, slots=True)
class FlushMark:
    flush_id: str


@dataclass(frozen=True, slots=True)
class GapMark:
    """Samples [start, end) were dropped before they got here."""

    start: int
    end: int
    reason: str  # shared.events.GapReason


@dataclass(frozen=True, slots=True)
class EndMark:
    """End of the session after `samples` of audio."""

    samples: int


@dataclass(frozen=True, slots=True)
class Encoded:
    """Encoder output over [start, end) of the session's samples, for the decoder to read one hypothesis from."""

    utterance: int
    kind: str  # anchor | partial | prepared | final (workers/stages/acoustic.py says what each is for)
    context: int  # utterances before this one whose audio is included in front
    start: int
    utterance_start: int
    end: int
    voiced: int  # prepared and final: samples that sounded like speech
    loudness: bytes  # prepared and final: of the utterance, one byte per 8 ms (workers/stages/wordtimes.py)
    hidden: npt.NDArray[np.float16]  # [frames, width]


SpeechMark = Opened | Paused | Resumed | Closed | Silent | Through | GapMark | FlushMark | EndMark
SpeechItem = Speech | SpeechMark
EncodedItem = Opened | Encoded | Resumed | Closed | Silent | Through | GapMark | FlushMark | EndMark

_TYPES: dict[str, type] = {
    t.__name__: t
    for t in (
        AudioChunk,
        Opened,
        Speech,
        Paused,
        Resumed,
        Closed,
        Silent,
        Through,
        GapMark,
        FlushMark,
        EndMark,
        Encoded,
    )
}


def pack(value: Any) -> bytes:
    """Plain values, arrays and (nested) dataclasses to bytes."""
    packed: bytes = msgpack.packb(value, default=_default, use_bin_type=True)
    return packed


def unpack(raw: bytes) -> Any:
    """The reverse, with dataclasses still as plain lists; arrays restored (read-only)."""
    return msgpack.unpackb(raw, ext_hook=_ext, use_list=False, strict_map_key=False)


def pack_items(items: Sequence[Any]) -> bytes:
    """A stage's outputs of one pass."""
    return pack([(type(item).__name__, *_values(item)) for item in items])


def unpack_items(raw: bytes) -> tuple[Any, ...]:
    return tuple(_TYPES[name](*values) for name, *values in unpack(raw))


def _values(item: Any) -> tuple[Any, ...]:
    return tuple(getattr(item, field.name) for field in fields(item))


def _default(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        head = msgpack.packb((value.dtype.str, value.shape))
        return msgpack.ExtType(1, head + np.ascontiguousarray(value).tobytes())
    if isinstance(value, np.generic):
        return value.item()
    if is_dataclass(value):
        return _values(value)
    raise TypeError(f"{type(value)} does not travel")


def _ext(code: int, data: bytes) -> Any:
    assert code == 1
    unpacker = msgpack.Unpacker(use_list=False)
    unpacker.feed(data[:64])
    dtype, shape = unpacker.unpack()
    return np.frombuffer(data, dtype, offset=unpacker.tell()).reshape(shape)
