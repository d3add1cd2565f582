"""What the processes that decode untrusted audio have in common: their limits, and the way to 16 kHz s16le.

Imported by shared/media_child.py and shared/stream_child.py only, never by a process that has something to lose.
"""

import ctypes
import resource
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import av
import numpy as np
import soxr
from numpy.typing import NDArray

RATE = 16_000
# 768 kHz is the fastest converter sold; the test data has a header that claims 1,092,676 Hz.
_RATES = range(1_000, 768_001)
_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS = 1, 38

Block = NDArray[np.float32]  # [samples, channels]


class Refused(Exception):
    """What is wrong with the audio, for people."""


def confine(memory_bytes: int) -> None:
    """Give up what decoding does not need; the codecs are loaded already."""
    for what, limit in (
        (resource.RLIMIT_AS, memory_bytes),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NOFILE, 32),
    ):
        with suppress(ValueError, OSError):  # macOS has no RLIMIT_AS
            resource.setrlimit(what, (limit, limit))
    if sys.platform == "linux":
        prctl = ctypes.CDLL(None).prctl
        prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def allow_cpu(seconds: int) -> None:
    """So much from now on. A codec that hangs is ended by the kernel, even should our parent have died meanwhile."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    ends = int(used.ru_utime + used.ru_stime) + seconds + 1
    resource.setrlimit(resource.RLIMIT_CPU, (ends, resource.RLIM_INFINITY))


class Interleave:
    """Frames of a decoder, of any sample format, to blocks of floats."""

    def __init__(self) -> None:
        self._kind: object = None
        self._change: Any = None

    def __call__(self, frame: Any) -> Iterator[tuple[Block, int]]:
        """Blocks and their rates."""
        kind = (frame.format.name, frame.layout.name, frame.sample_rate)
        if kind != self._kind:  # also in the midst of a stream: chained Ogg files
            self._kind, self._change = kind, av.AudioResampler(format="flt")
        for even in self._change.resample(frame):
            # One plane, whose bytes are read by their true length. to_ndarray() is what crashes.
            channels = even.layout.nb_channels
            flat = np.frombuffer(bytes(even.planes[0]), np.float32, count=even.samples * channels)
            yield flat.reshape(-1, channels), even.sample_rate


class To16k:
    """Resamples block by block: what a file unfolds to is never held as a whole."""

    def __init__(self, channels: int = 1, *, quick: bool = False) -> None:
        """`quick`: the filter that holds back less of audio at 8 kHz, as in gateway/audio.py."""
        self._channels = channels
        self._quick = quick
        self._rate = 0
        self._filter: Any = None

    def feed(self, block: Block, rate: int) -> bytes:
        """Raises Refused for a rate that no recorder writes."""
        before = b""
        if rate != self._rate:
            if rate not in _RATES:
                raise Refused(f"its header says {rate} Hz, which no recorder writes")
            before, self._rate = self.finish(), rate
            quick = self._quick and rate == 8_000
            self._filter = soxr.ResampleStream(rate, RATE, self._channels, dtype="float32", vr=quick)
        finite = np.nan_to_num(block, nan=0.0, posinf=1.0, neginf=-1.0)
        return before + _s16(finite if rate == RATE else self._filter.resample_chunk(finite))

    def finish(self) -> bytes:
        """What the filter holds back; it begins afresh."""
        if self._rate in (0, RATE):
            return b""
        empty = np.empty((0, self._channels) if self._channels > 1 else 0, np.float32)
        rest = _s16(self._filter.resample_chunk(empty, last=True))
        self._filter.clear()
        return rest


def _s16(samples: NDArray[np.float32]) -> bytes:
    return bytes((samples * 32_768).round().clip(-32_768, 32_767).astype("<i2").tobytes())
