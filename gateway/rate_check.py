"""Tells that audio sounds as if it had another sample rate than its client announced.

A false alarm is worse than a miss: it is told only where the audio as announced is speech far from the pace of people, and read
at another rate is speech at their pace (gateway/pace.py). Figures: ops/decisions/0015-sample-rate.md.
"""

import asyncio
import math
from collections import Counter

import soxr

from gateway.pace import RATE, Doubles, pace
from gateway.pace_model import MODEL
from gateway.pcm import to_floats
from shared.protocol import Advice, SessionOptions

WINDOW_S = 15
# Looked at one after the other; then the check costs nothing any more. Two must agree: one of 2,730 windows of speech that
# was announced rightly sounded as if it were not, of 11.4 hours.
_WINDOWS = 4
_AGREEING = 2
# One of 44.1 and 48 kHz is enough: they differ by less than speakers do.
RATES = (8_000, 16_000, 24_000, 48_000)

_SUSPICIOUS = 0.75
_NATURAL = 0.45
_STRANGE = 2.4
_APART = 0.9


class RateCheck:
    """Of one connection's audio, its first minute."""

    def __init__(self, options: SessionOptions) -> None:
        self._announced = options.sample_rate
        self._channels = options.separate
        self._bytes = WINDOW_S * RATE * 2 * self._channels
        self._held = bytearray()
        self._left = _WINDOWS
        self._found: Counter[int] = Counter()  # likely rates, by how many windows

    def hear(self, samples: bytes) -> None:
        """Take s16le at 16 kHz, interleaved."""
        if self._left:
            self._held += samples[: self._left * self._bytes - len(self._held)]

    async def advice(self) -> Advice | None:
        """What the client should know, once."""
        while self._left and len(self._held) >= self._bytes:
            window = bytes(self._held[: self._bytes])
            del self._held[: self._bytes]
            self._left -= 1
            # 48 ms of computing, more where it is suspicious: not in the loop that serves everybody.
            if rate := await asyncio.to_thread(likely_rate, window, self._announced, self._channels):
                self._found[rate] += 1
                if self._found[rate] == _AGREEING:
                    self._left = 0
                    self._held.clear()
                    return _advice(self._announced, rate)
        return None


def likely_rate(window: bytes, announced: int, channels: int = 1, model: Doubles = MODEL) -> int | None:
    """The rate that would be right for s16le at 16 kHz; None: it sounds right as announced, or can't be told."""
    samples = to_floats(window, "pcm_s16le").reshape(-1, channels).mean(axis=1)
    heard = pace(samples, model)
    if heard is None or abs(heard.octaves) < _SUSPICIOUS:
        return None
    natural = {}
    for rate in RATES:
        octaves = math.log2(announced / rate)
        if abs(octaves) < _APART or octaves * heard.octaves < 0:
            continue
        read = pace(soxr.resample(samples, rate, announced), model)
        if read and abs(read.octaves) < _NATURAL and read.strangeness < min(_STRANGE, heard.strangeness):
            natural[rate] = abs(read.octaves)
    return min(natural, key=lambda rate: natural[rate], default=None)


def _advice(announced: int, likely: int) -> Advice:
    speed = "faster" if announced > likely else "slower"
    message = (
        f"speech is much {speed} than people speak: the audio sounds as if it were {likely} Hz, announced as {announced} Hz. "
        "Announce the rate it was recorded at"
    )
    return Advice(code="sample_rate", message=message, announced=announced, likely=likely)
