"""Reads a WAV file while it comes in: where its samples are, and how they are written.

Most containers that are streamed are these, and libraries are of no use for them: FFmpeg waits for 64 KB (2 s) before the first
sample. Sizes are what streaming programs get wrong: 0, 0xFFFFFFFF or whatever was there before.
"""

import math
import re

from gateway.pcm import Layout, SampleEncoding
from shared.errors import BadInput

# By format tag and bytes of a sample.
_ENCODINGS: dict[tuple[int, int], SampleEncoding] = {
    (1, 1): "pcm_u8",
    (1, 2): "pcm_s16le",
    (1, 3): "pcm_s24le",
    (1, 4): "pcm_s32le",
    (3, 4): "pcm_f32le",
    (3, 8): "pcm_f64le",
    (6, 1): "alaw",
    (7, 1): "mulaw",
}
_EXTENSIBLE = 0xFFFE
_RIFF = (b"RIFF", b"RF64")
_CHUNK_ID = re.compile(rb"[A-Za-z0-9_ ]{4}")
_LARGEST_FORMAT = 1 << 12
_HEADER_BYTES = {b"RIFF": 12, b"RF64": 12, b"ds64": 24}  # as far as they matter; others: 8
# Nobody streams 2 GB; who writes such a size does not know it.
_UNKNOWN = 0x7FFF0000


def layout_in(head: bytes) -> Layout | None:
    """How the samples of a WAV file that begins so are written; None for those that are not plain samples.

    Raises IndexError where the beginning is too short to tell.
    """
    if head[:4] not in _RIFF:
        return None
    at = 12
    while head[at : at + 4] != b"fmt ":
        size = int.from_bytes(head[at + 4 : at + 8], "little")
        if head[at : at + 4] == b"data":
            return None
        if len(head) < at + 8:
            raise IndexError
        at += 8 + size + size % 2
    size = int.from_bytes(head[at + 4 : at + 8], "little")
    if len(head) < at + 8 + min(size, _LARGEST_FORMAT):
        raise IndexError
    return _layout(head[at + 8 : at + 8 + size])


def _layout(fields: bytes) -> Layout | None:
    def number(at: int, size: int) -> int:
        return int.from_bytes(fields[at : at + size], "little")

    tag, channels, rate, bits = number(0, 2), number(2, 2), number(4, 4), number(14, 2)
    if tag == _EXTENSIBLE:
        tag = number(24, 2)
    encoding = _ENCODINGS.get((tag, (bits + 7) // 8))
    return Layout(encoding, rate, channels) if encoding and channels else None


class WavSamples:
    """Feed it the file; it gives what is in its data chunks."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._data = bytearray()  # not looked at yet
        self._left = 0.0  # bytes of samples still to come
        self._skip = 0  # bytes of another chunk
        self._odd = False  # whether a byte may follow that only fills up
        self._size64: float = math.inf  # of a RF64 file's samples
        self._begun = False

    def feed(self, data: bytes) -> bytes:
        """Raises BadInput where a second file begins that is written otherwise, or what is no WAV file."""
        if self._left > len(data) and not self._data:  # nearly always
            self._left -= len(data)
            return data
        self._data += data
        parts = []
        while (part := self._step()) is not None:
            parts.append(part)
        return b"".join(parts)

    def _step(self) -> bytes | None:
        """Samples, or nothing where it looked at something else; None when more has to come first."""
        if not self._data:
            return None
        if self._left:
            part = self._cut(min(self._left, len(self._data)))
            self._left -= len(part)
            return part
        if self._skip:
            self._skip -= len(self._cut(min(self._skip, len(self._data))))
        elif self._odd:
            self._odd = False
            if not self._data[0]:
                self._cut(1)
        else:
            return self._header()
        return b""

    def _header(self) -> bytes | None:
        kind, size = bytes(self._data[:4]), int.from_bytes(self._data[4:8], "little")
        if len(self._data) < _HEADER_BYTES.get(kind, 8):
            return None
        if kind in _RIFF:  # some clients send many short files
            self._cut(12)
        elif kind == b"data":
            self._cut(8)
            self._begun, self._odd = True, bool(size % 2)
            self._left = size if 0 < size < _UNKNOWN else self._size64
        elif kind == b"fmt " and size <= _LARGEST_FORMAT:
            if len(self._data) < 8 + size:
                return None
            self._check(_layout(self._cut(8 + size)[8:]))
        elif _CHUNK_ID.fullmatch(kind):
            if kind == b"ds64":
                self._size64 = int.from_bytes(self._data[16:24], "little") or math.inf
            self._skip = 8 + size + size % 2
        elif self._begun:  # the size was wrong
            self._left = math.inf
        else:
            raise BadInput("a WAV file arrived, but after its header there is something else than a chunk")
        return b""

    def _check(self, layout: Layout | None) -> None:
        if layout != self._layout:
            raise BadInput(
                f"a WAV file with {self._layout} was followed by one with {layout or 'another codec'}"
            )

    def _cut(self, size: float) -> bytes:
        part = bytes(self._data[: int(size)])
        del self._data[: int(size)]
        return part
