"""Raw audio encodings a client may announce, as numpy arrays."""

import numpy as np
from numpy.typing import NDArray

from shared.protocol import RawEncoding

Floats = NDArray[np.float32]

SAMPLE_WIDTH: dict[RawEncoding, int] = {"pcm_s16le": 2, "pcm_f32le": 4, "mulaw": 1, "alaw": 1}
FULL_SCALE = 32_768  # of s16


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


def to_floats(raw: bytes, encoding: RawEncoding) -> Floats:
    """Samples in -1 … 1. NaN and infinities become 0, louder floats are clipped."""
    if encoding == "pcm_s16le":
        return np.frombuffer(raw, "<i2").astype(np.float32) / np.float32(FULL_SCALE)
    if encoding == "pcm_f32le":
        floats = np.frombuffer(raw, "<f4").astype(np.float32)
        return np.clip(np.where(np.isfinite(floats), floats, np.float32(0)), -1, 1)
    return _G711[encoding][np.frombuffer(raw, np.uint8)]


def to_s16le(floats: Floats) -> bytes:
    """Rounded and clipped, not wrapped."""
    return np.clip(np.rint(floats * FULL_SCALE), -FULL_SCALE, FULL_SCALE - 1).astype("<i2").tobytes()
