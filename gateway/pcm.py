"""Raw audio encodings, those a client may announce and those of WAV files, as numpy arrays."""

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shared.protocol import RawEncoding, SessionOptions

Floats = NDArray[np.float32]

SampleEncoding = RawEncoding | Literal["pcm_u8", "pcm_s24le", "pcm_s32le", "pcm_f64le"]
SAMPLE_WIDTH: dict[SampleEncoding, int] = {
    "pcm_s16le": 2,
    "pcm_f32le": 4,
    "mulaw": 1,
    "alaw": 1,
    "pcm_u8": 1,
    "pcm_s24le": 3,
    "pcm_s32le": 4,
    "pcm_f64le": 8,
}
FULL_SCALE = 32_768  # of s16


class Layout(NamedTuple):
    """How raw audio is written."""

    encoding: SampleEncoding
    sample_rate: int
    channels: int

    @property
    def frame_bytes(self) -> int:
        """Of a sample of all channels."""
        return SAMPLE_WIDTH[self.encoding] * self.channels

    def __str__(self) -> str:
        return f"{self.encoding} ({self.sample_rate} Hz, {self.channels} channel(s))"


def layout_of(options: SessionOptions) -> Layout:
    """What a client announces."""
    return Layout(options.raw_encoding, options.sample_rate, options.channels)


def _mulaw_table() -> Floats:
    """ITU-T G.711 mu-law: inverted code of sign, 3-bit segment, 4-bit step; 14-bit values scaled to 16."""
    code = ~np.arange(256, dtype=np.uint8)
    segment, step = (code >> 4) & 7, (code & 15).astype(np.int32)
    magnitude = (((step << 3) + 132) << segment) - 132
    return _scaled(np.where(code & 0x80, -magnitude, magnitude))


def _alaw_table() -> Floats:
    """ITU-T G.711 A-law: even bits inverted; the lowest segment is linear; 13-bit values scaled to 16."""
    code = np.arange(256, dtype=np.uint8) ^ 0x55
    segment, step = ((code >> 4) & 7).astype(np.int32), (code & 15).astype(np.int32)
    magnitude = np.where(segment > 0, ((step << 4) + 264) << np.maximum(segment - 1, 0), (step << 4) + 8)
    return _scaled(np.where(code & 0x80, magnitude, -magnitude))


def _scaled(values: NDArray[np.signedinteger]) -> Floats:
    return (values / FULL_SCALE).astype(np.float32)


_G711 = {"mulaw": _mulaw_table(), "alaw": _alaw_table()}


def to_floats(raw: bytes, encoding: SampleEncoding) -> Floats:
    """Samples in -1 … 1. NaN and infinities become 0, louder floats are clipped."""
    match encoding:
        case "pcm_s16le":
            return np.frombuffer(raw, "<i2").astype(np.float32) / np.float32(FULL_SCALE)
        case "pcm_f32le" | "pcm_f64le":
            with np.errstate(over="ignore"):  # what is too large for 32 bits is infinite
                floats = np.frombuffer(raw, "<f4" if encoding == "pcm_f32le" else "<f8").astype(np.float32)
            return np.clip(np.where(np.isfinite(floats), floats, np.float32(0)), -1, 1)
        case "pcm_u8":
            return (np.frombuffer(raw, np.uint8).astype(np.float32) - 128) / np.float32(128)
        case "pcm_s24le":
            wide = np.zeros((len(raw) // 3, 4), np.uint8)
            wide[:, 1:] = np.frombuffer(raw, np.uint8).reshape(-1, 3)
            return to_floats(wide.tobytes(), "pcm_s32le")
        case "pcm_s32le":
            return np.frombuffer(raw, "<i4").astype(np.float32) / np.float32(2**31)
        case _:
            return _G711[encoding][np.frombuffer(raw, np.uint8)]


def to_s16le(floats: Floats) -> bytes:
    """Rounded and clipped, not wrapped."""
    return np.clip(np.rint(floats * FULL_SCALE), -FULL_SCALE, FULL_SCALE - 1).astype("<i2").tobytes()
