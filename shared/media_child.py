"""The process that decodes untrusted files for shared/media.py. It imports nothing of ours and is run by its path.

    media_child.py PIPE LONGEST_S MEMORY_BYTES CPU_S

Reads paths from the pipe until its other end closes, and answers each with b"+" and its samples (16 kHz mono s16le) or
b"-" and what is wrong with it. Whatever a file costs is limited before it is opened.
"""

import ctypes
import os
import resource
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

import av
import numpy as np
import soundfile
import soxr
from numpy.typing import NDArray

RATE = 16_000
# 768 kHz is the fastest converter sold; the test data has a header that claims 1,092,676 Hz.
_RATES = range(1_000, 768_001)
_BLOCK = 1 << 20  # samples decoded at a time, all channels together
_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS = 1, 38
# Demuxers of single files: playlists and the like would make FFmpeg open other files, or addresses.
_FORMATS = (
    "aac,ac3,aiff,amr,ape,asf,au,avi,caf,flac,flv,gsm,matroska,mov,mp3,mpeg,mpegts,ogg,rm,tta,w64,wav,webm,wv"
)

Blocks = Iterator[tuple[NDArray[np.float32], int]]  # ([n] mono samples, their rate)


class Refused(Exception):
    """What is wrong with a file, for people."""


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


def serve(pipe: Connection, longest_s: int, cpu_s: int) -> None:
    with suppress(EOFError, ConnectionError):
        while True:
            path = os.fsdecode(pipe.recv_bytes())
            used = resource.getrusage(resource.RUSAGE_SELF)
            # Should our parent die while this hangs, the kernel ends it.
            ends = int(used.ru_utime + used.ru_stime) + cpu_s + 1
            resource.setrlimit(resource.RLIMIT_CPU, (ends, resource.RLIM_INFINITY))
            pipe.send_bytes(answer(path, longest_s))


def answer(path: str, longest_s: int) -> bytes:
    try:
        return b"+" + decode(path, longest_s)
    except Refused as refused:
        return b"-" + str(refused).encode()
    except MemoryError:
        return b"-it needs more memory to decode than a file may; convert it with ffmpeg first"


def decode(path: str, longest_s: int) -> bytes:
    with suppress(soundfile.LibsndfileError, ValueError, TypeError):
        if pcm := _at_16k(_sound_file(path), longest_s):
            return pcm
    # FFmpeg also reads the headers of streamed files, which say that nothing follows.
    if pcm := _at_16k(_container(path), longest_s):
        return pcm
    raise Refused("it holds no audio")


def _at_16k(blocks: Blocks, longest_s: int) -> bytes:
    """Resample block by block: what a file unfolds to is never held as a whole before its length is known."""
    parts: list[bytes] = []
    resampler: Any = None
    seconds = 0.0
    for mono, rate in blocks:
        if rate not in _RATES:
            raise Refused(f"its header says {rate} Hz, which no recorder writes")
        seconds += len(mono) / rate
        if seconds > longest_s:
            raise Refused(f"it is longer than {_duration(longest_s)}: cut it first")
        resampler = resampler or soxr.ResampleStream(rate, RATE, 1, dtype="float32")
        finite = np.nan_to_num(mono, nan=0.0, posinf=1.0, neginf=-1.0)
        parts.append(_s16(finite if rate == RATE else resampler.resample_chunk(finite)))
    if resampler:
        parts.append(_s16(resampler.resample_chunk(np.empty(0, np.float32), last=True)))
    return b"".join(parts)


def _s16(samples: NDArray[np.float32]) -> bytes:
    return bytes((samples * 32_768).round().clip(-32_768, 32_767).astype("<i2").tobytes())


def _duration(seconds: int) -> str:
    return f"{seconds // 3600} hours" if seconds >= 7200 else f"{seconds} s"


def _sound_file(path: str) -> Blocks:
    with soundfile.SoundFile(path) as file:
        size = max(1, _BLOCK // file.channels)
        while len(block := file.read(size, dtype="float32", always_2d=True)):
            yield block.mean(axis=1, dtype=np.float32), file.samplerate


def _container(path: str) -> Blocks:
    """The first audio stream. Damaged packets are left out."""
    options = {"format_whitelist": _FORMATS, "protocol_whitelist": "file"}
    try:
        with av.open(path, options=options) as container:
            if not container.streams.audio:
                raise Refused("it has no audio stream")
            # "flt" interleaves: one plane whose bytes are read by their true length. to_ndarray() is what crashes.
            interleave = av.AudioResampler(format="flt")
            for packet in container.demux(container.streams.audio[0]):
                with suppress(av.InvalidDataError):
                    for frame in packet.decode():
                        yield from map(_mono, interleave.resample(frame))
    except MemoryError:
        raise
    except (av.FFmpegError, ValueError) as error:
        raise Refused("not audio that FFmpeg can read; raw PCM needs a WAV header first") from error


def _mono(frame: Any) -> tuple[NDArray[np.float32], int]:
    channels = frame.layout.nb_channels
    flat = np.frombuffer(bytes(frame.planes[0]), np.float32, count=frame.samples * channels)
    return flat.reshape(-1, channels).mean(axis=1), frame.sample_rate


if __name__ == "__main__":
    pipe_fd, longest, memory, cpu = map(int, sys.argv[1:])
    confine(memory)
    serve(Connection(pipe_fd), longest, cpu)
