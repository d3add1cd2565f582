"""Tells audio that is not what the client announced, from its first bytes.

A wrong encoding decodes to loud noise: the client would get an absurd transcript and no explanation. Every check
is one that real speech in the announced encoding cannot meet, because a false alarm is worse than a miss.
"""

import json
import re

import numpy as np

from gateway.containers import container_of
from gateway.pcm import SAMPLE_WIDTH, Layout
from shared.errors import BadInput

_FIRST_LOOK = 64  # bytes; then at every doubling: a dozen looks at most, however small the frames are
_HEAD_BYTES = 65_536
_MIN_SAMPLES = 500  # non-zero ones before statistics count: 1/16 s at 8 kHz
_MAX_JSON = 4_096  # control messages are shorter
_TEXT = re.compile(rb"[\t\n\r\x20-\x7e]*")


class Sniffer:
    """Looks at the start of one connection's audio; a few numpy passes in all, nothing after the first second."""

    def __init__(self, layout: Layout) -> None:
        self._encoding = layout.encoding
        self._limit = min(_HEAD_BYTES, layout.sample_rate * layout.frame_bytes)
        # 64 printable bytes of 16-bit audio are impossible; companded audio below zero prints too, but not for 1/8 s.
        self._text_bytes = 2_048 if SAMPLE_WIDTH[layout.encoding] == 1 else 64
        self._announced = str(layout)
        self._head = bytearray()
        self._next_look = _FIRST_LOOK

    def look(self, raw: bytes) -> None:
        """Take notice of whole samples. Raises BadInput when they are not what was announced."""
        if len(self._head) >= self._limit or (not self._head and raw.count(0) == len(raw)):
            return  # seen enough; or digital silence, which tells nothing: the first second starts after it
        self._head += raw[: self._limit - len(self._head)]
        if len(self._head) >= min(self._next_look, self._limit):
            self._next_look *= 2
            head = bytes(self._head)
            self._judge(head, text=len(head) >= self._text_bytes and _is_text(head[: self._text_bytes]))

    def finish(self) -> None:
        """Judge what a short session sent as a whole. Raises BadInput like `look`."""
        head = bytes(self._head)
        self._judge(head, text=_is_text(head))

    def _judge(self, head: bytes, *, text: bool) -> None:
        if container := container_of(head):
            raise self._wrong(
                f"{container.what} arrived", "announce encoding=container, or nothing, to send it as it is"
            )
        if text:
            raise self._wrong("text arrived", "send raw samples, and control messages in text frames")
        if self._encoding == "pcm_s16le" and _holds_floats(head):
            raise self._wrong("32-bit floats arrived", "announce encoding pcm_f32le, or convert to 16 bits")
        if self._encoding == "pcm_f32le":
            self._judge_floats(head)

    def _judge_floats(self, head: bytes) -> None:
        with np.errstate(invalid="ignore"):
            values = np.abs(np.frombuffer(head[: len(head) // 4 * 4], "<f4"))
        values = values[values != 0]
        if len(values) < _MIN_SAMPLES:
            return
        # Every negative 16-bit sample above -14,336 in a float's upper half makes it NaN or larger than 2^17.
        if np.mean(~(values < 2**17)) > 0.2:
            raise self._wrong("no floats arrived", "announce encoding pcm_s16le if these are 16-bit samples")
        if np.nanmedian(values) > 8:
            raise self._wrong("floats far beyond -1 … 1 arrived", "divide 16-bit values by 32768")

    def _wrong(self, what: str, remedy: str) -> BadInput:
        return BadInput(f"{what} where raw {self._announced} was announced: {remedy}")


def refuse_json(frame: bytes) -> None:
    """Raise BadInput if a binary message is a JSON object: a control message sent the wrong way."""
    if not (8 <= len(frame) <= _MAX_JSON and frame[:1] == b"{" and frame.rstrip()[-1:] == b"}"):
        return
    try:
        json.loads(frame)
    except (ValueError, RecursionError):  # the latter: brackets in brackets, a thousand deep
        return
    raise BadInput("a JSON message arrived in a binary frame: send control messages as text frames")


def _is_text(head: bytes) -> bool:
    if not head or _TEXT.fullmatch(head) is None:
        return False
    # Companded audio below zero prints as well (an offset under a pause: '~}~|'), but not as a mix of small letters,
    # which are its soft samples, and of blanks, quotes and digits, which are its loud ones.
    codes = np.frombuffer(head, np.uint8)
    return bool(np.mean(codes < 0x40) > 0.03 and np.mean(codes >= 0x60) > 0.2)


def _holds_floats(head: bytes) -> bool:
    """Whether every second 16-bit word is the upper half of a float between 2^-40 and 4, of either sign.

    As 16-bit samples those are ones around +14,000 or -19,000 and nothing else, which no sound is.
    """
    words = np.frombuffer(head[: len(head) // 4 * 4], "<u2").reshape(-1, 2)
    words = words[words.any(axis=1)]
    if len(words) < _MIN_SAMPLES:
        return False
    exponents = words >> 7 & 0xFF
    plausible = np.mean((exponents >= 87) & (exponents <= 128), axis=0)
    negative = np.mean(words >> 15, axis=0)
    both_signs = (negative > 0.05) & (negative < 0.95)
    return bool(plausible.max() > 0.98 and plausible.min() < 0.6 and both_signs[plausible.argmax()])
