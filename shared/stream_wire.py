"""What a gateway and its decoding child (shared/stream_child.py) say to each other: framed messages over two pipes.

    to the child    START once, then DATA (bytes of the container) and MARK (a token) in any order, then END or PAUSE
    from the child  PCM (s16le at 16 kHz), MARK (what was decoded before it; its token), then DONE, PAUSE or PROBLEM (text)

A mark brings all that there is, the resampler's rest included. A pause brings only what is certain, for it will come again.

Never pickles: those could make a gateway run whatever a hijacked child likes.
"""

import json
import struct
from dataclasses import asdict, dataclass
from typing import BinaryIO

HEAD = struct.Struct(">cI")
START, DATA, MARK, PAUSE, END = b"s", b"d", b"m", b"w", b"e"
PCM, DONE, PROBLEM = b"p", b"o", b"x"
# Of a mark that comes back: how many samples of each channel, at the container's rate, lie before it.
PLACE = struct.Struct(">Q")


@dataclass(frozen=True, slots=True)
class Start:
    """What is to be decoded, and how."""

    format: str  # one of FFmpeg's names
    channels: int = 0  # how many are wanted, interleaved; 0: whatever there are, mixed down to one
    skip: int = 0  # samples at the container's rate to leave out; then the resampler begins

    def dump(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def load(cls, raw: bytes) -> "Start":
        return cls(**json.loads(raw))


def framed(kind: bytes, payload: bytes = b"") -> bytes:
    return HEAD.pack(kind, len(payload)) + payload


def give(stream: BinaryIO, kind: bytes, payload: bytes = b"") -> None:
    stream.write(framed(kind, payload))
    stream.flush()


def take(stream: BinaryIO) -> tuple[bytes, bytes] | None:
    """The next message; None when the other side is gone."""
    head = stream.read(HEAD.size)
    if len(head) < HEAD.size:
        return None
    kind, size = HEAD.unpack(head)
    payload = stream.read(size)
    return (kind, payload) if len(payload) == size else None
