"""One connection's audio: from what the client announced to s16le at 16 kHz."""

import numpy as np
import soxr

from gateway.pcm import SAMPLE_WIDTH, to_floats, to_s16le
from gateway.sniff import Sniffer, refuse_json
from shared.errors import BadInput
from shared.protocol import SessionOptions

SAMPLE_RATE = 16_000


class AudioDecoder:
    """Feed messages of any size, split anywhere; the output does not depend on how they were split.

    16 kHz mono s16le passes through untouched. Everything else becomes floats, is mixed down by the channels'
    mean (with `multichannel` they stay apart, interleaved) and resampled by a filter that keeps its state from message
    to message.
    """

    def __init__(self, options: SessionOptions, taken: int = 0) -> None:
        """`taken`: samples sent before."""
        self._options = options
        self.taken = taken
        self._frame_bytes = SAMPLE_WIDTH[options.raw_encoding] * options.channels
        self._sniffer = Sniffer(options)
        self._torn = b""
        self._mixes = options.channels > 1 and not options.multichannel
        self._untouched = options.raw_encoding == "pcm_s16le" and not self._mixes
        rate = options.sample_rate
        self._resampler = None if rate == SAMPLE_RATE else _resampler(rate, options.separate)

    def feed(self, frame: bytes) -> bytes:
        """Decode one message. Raises BadInput when the audio is plainly not what was announced."""
        refuse_json(frame)
        raw = self._torn + frame if self._torn else frame
        whole = len(raw) - len(raw) % self._frame_bytes
        self._torn, raw = raw[whole:], raw[:whole]
        self.taken += whole // self._frame_bytes
        self._sniffer.look(raw)
        return self._convert(raw, last=False)

    def finish(self) -> bytes:
        """Return what the resampler holds back; call it at the end of the audio and for a flush.

        Audio fed afterwards starts the filter afresh.
        """
        rest = self._convert(b"", last=True)
        if self._resampler is not None:
            self._resampler.clear()
        return rest

    def require_whole(self) -> None:
        """After the last `finish`: raise BadInput if the audio ended inside a sample, or was none at all."""
        self._sniffer.finish()
        if self._torn:
            raise BadInput(
                f"the audio ended with {len(self._torn)} of the {self._frame_bytes} bytes that a sample of "
                f"{self._options.raw_encoding} with {self._options.channels} channel(s) takes: everything before was decoded"
            )

    def _convert(self, raw: bytes, *, last: bool) -> bytes:
        if self._untouched and self._resampler is None:
            return raw
        floats = to_floats(raw, self._options.raw_encoding)
        if self._mixes:
            floats = floats.reshape(-1, self._options.channels).mean(axis=1)
        if self._resampler is not None:
            separate = self._options.separate
            shaped = floats if separate == 1 else floats.reshape(-1, separate)
            floats = self._resampler.resample_chunk(shaped, last=last)
        return to_s16le(floats)


def split(samples: bytes, channels: int) -> list[bytes]:
    """Interleaved s16le by channel."""
    if channels == 1:
        return [samples]
    return [row.tobytes() for row in np.frombuffer(samples, "<i2").reshape(-1, channels).T]


def _resampler(rate: int, channels: int) -> soxr.ResampleStream:
    """HQ. It holds back 37 ms of audio at 48 kHz but 115 at 8 kHz; the variable-rate filter, 30 at 8 kHz.

    Other rates keep the constant-rate filter: the variable one delays them by a fraction of a sample and costs five
    times as much at 48 kHz (3 ms of CPU per second of audio). At 8 kHz it is within -80 dB of the other.
    """
    return soxr.ResampleStream(rate, SAMPLE_RATE, channels, dtype="float32", quality="HQ", vr=rate == 8_000)
