"""One connection's audio: from what the client announced, or a WAV file says, to s16le at 16 kHz."""

import numpy as np
import soxr

from gateway.pcm import Layout, layout_of, to_floats, to_s16le
from gateway.sniff import Sniffer, refuse_json
from gateway.wav import WavSamples
from shared.errors import BadInput
from shared.protocol import SessionOptions

SAMPLE_RATE = 16_000
# 768 kHz is the fastest converter sold; the test data has a header that claims 1,092,676 Hz.
_RATES = range(1_000, 768_001)


class PcmDecoder:
    """Feed messages of any size, split anywhere; the output does not depend on how they were split.

    16 kHz mono s16le passes through untouched. Everything else becomes floats, is mixed down by the channels'
    mean (with `multichannel` they stay apart, interleaved) and resampled by a filter that keeps its state from message
    to message.
    """

    def __init__(self, layout: Layout, taken: int = 0, *, multichannel: bool = False) -> None:
        """`taken`: samples sent before."""
        self._layout = layout
        self.taken = taken
        self._frame_bytes = layout.frame_bytes
        self._torn = b""
        self._separate = layout.channels if multichannel else 1
        self._mixes = layout.channels > self._separate
        self._untouched = layout.encoding == "pcm_s16le" and not self._mixes
        rate = layout.sample_rate
        self._resampler = None if rate == SAMPLE_RATE else _resampler(rate, self._separate)

    def feed(self, frame: bytes) -> bytes:
        """Decode one message. Raises BadInput when the audio is plainly not what was announced."""
        raw = self._torn + frame if self._torn else frame
        whole = len(raw) - len(raw) % self._frame_bytes
        self._torn, raw = raw[whole:], raw[:whole]
        self.taken += whole // self._frame_bytes
        self._look(raw)
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
        if self._torn:
            raise BadInput(
                f"the audio ended with {len(self._torn)} of the {self._frame_bytes} bytes that a sample of "
                f"{self._layout.encoding} with {self._layout.channels} channel(s) takes: everything before was decoded"
            )

    def _look(self, raw: bytes) -> None:
        """Take notice of whole samples."""

    def _convert(self, raw: bytes, *, last: bool) -> bytes:
        if self._untouched and self._resampler is None:
            return raw
        floats = to_floats(raw, self._layout.encoding)
        if self._mixes:
            floats = floats.reshape(-1, self._layout.channels).mean(axis=1)
        if self._resampler is not None:
            shaped = floats if self._separate == 1 else floats.reshape(-1, self._separate)
            floats = self._resampler.resample_chunk(shaped, last=last)
        return to_s16le(floats)


class AudioDecoder(PcmDecoder):
    """Raw samples, as the client announces them."""

    def __init__(self, options: SessionOptions, taken: int = 0) -> None:
        super().__init__(layout_of(options), taken, multichannel=options.multichannel)
        self._sniffer = Sniffer(self._layout)

    def feed(self, frame: bytes) -> bytes:
        refuse_json(frame)
        return super().feed(frame)

    def require_whole(self) -> None:
        self._sniffer.finish()
        super().require_whole()

    def _look(self, raw: bytes) -> None:
        self._sniffer.look(raw)


class WavDecoder(PcmDecoder):
    """A WAV file of plain samples."""

    def __init__(self, layout: Layout, taken: int = 0, *, multichannel: bool = False) -> None:
        """`taken`: samples of the file to leave out. Raises BadInput for an absurd rate."""
        if layout.sample_rate not in _RATES:
            raise BadInput(
                f"a WAV file arrived, but its header says {layout.sample_rate} Hz, which no recorder writes"
            )
        super().__init__(layout, taken, multichannel=multichannel)
        self._samples = WavSamples(layout)
        self._leave_out = taken * layout.frame_bytes

    def feed(self, frame: bytes) -> bytes:
        raw = self._samples.feed(frame)
        left_out = min(self._leave_out, len(raw))
        self._leave_out -= left_out
        return super().feed(raw[left_out:] if left_out else raw)

    def require_whole(self) -> None:
        """After the last `finish`: raise BadInput if there was nothing. A file that ends inside a sample was cut short."""
        if not self.taken:
            raise BadInput("a WAV file arrived, but it holds no audio")


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
