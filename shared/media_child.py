"""The process that decodes untrusted files for shared/media.py. It is run by its path.

    media_child.py PIPE LONGEST_S MEMORY_BYTES CPU_S

Reads paths from the pipe until its other end closes, and answers each with b"+" and its samples (16 kHz mono s16le) or
b"-" and what is wrong with it. Whatever a file costs is limited before it is opened.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path

import av
import numpy as np
import soundfile
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parents[1]))
from shared.media_sandbox import Interleave, Refused, To16k, allow_cpu, confine

_BLOCK = 1 << 20  # samples decoded at a time, all channels together
# Demuxers of single files: playlists and the like would make FFmpeg open other files, or addresses.
_FORMATS = (
    "aac,ac3,aiff,amr,ape,asf,au,avi,caf,flac,flv,gsm,matroska,mov,mp3,mpeg,mpegts,ogg,rm,tta,w64,wav,webm,wv"
)

Blocks = Iterator[tuple[NDArray[np.float32], int]]  # ([n] mono samples, their rate)


def serve(pipe: Connection, longest_s: int, cpu_s: int) -> None:
    with suppress(EOFError, ConnectionError):
        while True:
            path = os.fsdecode(pipe.recv_bytes())
            allow_cpu(cpu_s)
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
    parts: list[bytes] = []
    resampler = To16k()
    seconds = 0.0
    for mono, rate in blocks:
        parts.append(resampler.feed(mono, rate))
        seconds += len(mono) / rate
        if seconds > longest_s:
            raise Refused(f"it is longer than {_duration(longest_s)}: cut it first")
    return b"".join([*parts, resampler.finish()])


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
            blocks_of = Interleave()
            for packet in container.demux(container.streams.audio[0]):
                with suppress(av.InvalidDataError):
                    for frame in packet.decode():
                        for block, rate in blocks_of(frame):
                            yield block.mean(axis=1), rate
    except MemoryError:
        raise
    except (av.FFmpegError, ValueError) as error:
        raise Refused("not audio that FFmpeg can read; raw PCM needs a WAV header first") from error


if __name__ == "__main__":
    pipe_fd, longest, memory, cpu = map(int, sys.argv[1:])
    confine(memory)
    serve(Connection(pipe_fd), longest, cpu)
