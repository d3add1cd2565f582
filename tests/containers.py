"""Containers for tests: written by FFmpeg, and cut as clients cut them."""

import io
import struct
from typing import Any

import av
import numpy as np

OPUS = {"fmt": "ogg", "codec": "libopus", "rate": 48_000}
# Name: how it is written.
KINDS: dict[str, dict[str, Any]] = {
    "flac": {"fmt": "flac", "codec": "flac", "rate": 16_000},
    "mp3": {"fmt": "mp3", "codec": "libmp3lame", "rate": 16_000},
    "ogg opus": OPUS | {"page_duration": "20000"},
    "webm opus": {"fmt": "webm", "codec": "libopus", "rate": 48_000, "live": "1"},
    "aac": {"fmt": "adts", "codec": "aac", "rate": 16_000},
    "fragmented m4a": {
        "fmt": "mp4",
        "codec": "aac",
        "rate": 16_000,
        "movflags": "frag_keyframe+empty_moov+default_base_moof",
        "frag_duration": "100000",
    },
    "m4a": {"fmt": "mp4", "codec": "aac", "rate": 16_000},
    "aiff": {"fmt": "aiff", "codec": "pcm_s16be", "rate": 16_000},
    "au": {"fmt": "au", "codec": "pcm_mulaw", "rate": 8_000},
    "caf": {"fmt": "caf", "codec": "pcm_s16le", "rate": 16_000},
    "amr": {"fmt": "amr", "codec": "libopencore_amrnb", "rate": 8_000},
}
# FFmpeg's names; as gateway/containers.py tells them from the first bytes.
FORMATS = {
    "flac": "flac",
    "mp3": "mp3",
    "ogg opus": "ogg",
    "webm opus": "matroska",
    "aac": "aac",
    "fragmented m4a": "mov",
    "m4a": "mov",
    "aiff": "aiff",
    "au": "au",
    "caf": "caf",
    "amr": "amr",
}


def tone(rate: int, seconds: float = 1.0, hertz: float = 440.0) -> np.ndarray:
    return (0.5 * np.sin(2 * np.pi * hertz * np.arange(int(rate * seconds)) / rate)).astype(np.float32)


def container(kind: str, samples: np.ndarray | None = None, seconds: float = 1.0) -> bytes:
    """A container of that kind with samples ([n] or [n, 2], at its rate); None: with a tone of 440 Hz."""
    how = dict(KINDS[kind])
    fmt, codec, rate = how.pop("fmt"), how.pop("codec"), how.pop("rate")
    samples = tone(rate, seconds) if samples is None else samples
    layout = "mono" if samples.ndim == 1 else "stereo"
    written = io.BytesIO()
    with av.open(written, "w", format=fmt, options=how) as into:
        stream = into.add_stream(codec, rate=rate, layout=layout)
        frame = av.AudioFrame("flt", layout, len(samples))
        frame.sample_rate = rate
        frame.planes[0].update(samples.astype("<f4").tobytes().ljust(frame.planes[0].buffer_size, b"\0"))
        fit = av.AudioResampler(
            format=stream.codec_context.format,
            layout=layout,
            rate=rate,
            frame_size=stream.codec_context.frame_size,
        )
        packets = [p for f in [*fit.resample(frame), *fit.resample(None)] for p in stream.encode(f)]
        for packet in [*packets, *stream.encode(None)]:
            into.mux(packet)
    return written.getvalue()


def wav(
    samples: bytes,
    tag: int = 1,
    *,
    rate: int = 16_000,
    channels: int = 1,
    bits: int = 16,
    size: int | None = None,
) -> bytes:
    """A WAV file; `size`: what its header says."""
    size = len(samples) if size is None else size
    width = bits // 8
    fmt = struct.pack("<HHIIHH", tag, channels, rate, rate * channels * width, channels * width, bits)
    head = b"RIFF" + struct.pack("<I", min(size + 36, 0xFFFFFFFF)) + b"WAVEfmt " + struct.pack("<I", 16) + fmt
    return head + b"data" + struct.pack("<I", size) + samples


def pieces(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]
