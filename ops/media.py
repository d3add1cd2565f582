"""Any audio or video file to the fleet's own format: 16 kHz, one channel, s16le.

Decoding happens in a child process: container libraries crash on some files (PyAV 18.1 takes the process down
on an 8-channel m4a), hang on others, and a damaged file must cost one line, not the run.
"""

import subprocess
import sys
import threading
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from shared.errors import BadInput

RATE = 16_000

# 768 kHz is the fastest converter sold; the test data has a header that claims 1,092,676 Hz.
_RATES = range(1_000, 768_001)
_LONGEST_S = 6 * 3600  # as float32 at 48 kHz this is 4 GB


class MediaDecoder:
    """Decodes files one at a time in a child that it starts when needed and replaces when it dies."""

    def __init__(self, *, timeout_s: float = 120.0) -> None:
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None
        self._pipe: Connection | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.close()

    def decode(self, path: Path) -> bytes:
        """The file's samples, 16 kHz mono s16le. Raises BadInput with the file and the reason."""
        if not path.is_file():
            what = "is a folder" if path.is_dir() else "does not exist"
            raise BadInput(f"{path} {what}: name an audio file")
        with self._lock:
            pcm, problem = self._ask(path)
        if problem:
            raise BadInput(f"{path}: {problem}")
        return pcm

    def close(self) -> None:
        if self._child is None or self._pipe is None:
            return
        self._pipe.close()
        self._child.kill()  # it holds nothing that could be lost
        self._child.wait()
        self._child = self._pipe = None

    def _ask(self, path: Path) -> tuple[bytes, str]:
        pipe = self._pipe or self._start()
        try:
            pipe.send(str(path))
            if pipe.poll(self._timeout_s):
                answer: tuple[bytes, str] = pipe.recv()
                return answer
            problem = f"not decoded within {self._timeout_s:g} s; convert it with ffmpeg first"
        except (EOFError, OSError):
            problem = "the decoder crashed on it; convert it with ffmpeg first"
        self.close()
        return b"", problem

    def _start(self) -> Connection:
        # Not multiprocessing.Process: that leaves its resource tracker running for a moment after we are gone.
        self._pipe, theirs = Pipe()
        fd = theirs.fileno()
        command = [sys.executable, "-m", "ops.media", str(fd)]
        # In a session of its own Ctrl-C does not reach it: it ends when our end of the pipe closes. What codecs
        # write to standard error is about bytes, not for people.
        self._child = subprocess.Popen(
            command, pass_fds=[fd], start_new_session=True, stderr=subprocess.DEVNULL
        )
        theirs.close()
        return self._pipe


def _serve(pipe: Connection) -> None:
    """Answer paths with (samples, problem) until the other end of the pipe closes."""
    with suppress(EOFError, ConnectionError):
        while True:
            pipe.send(_answer(pipe.recv()))


def _answer(path: str) -> tuple[bytes, str]:
    try:
        return _decode(path), ""
    except BadInput as error:
        return b"", str(error)


def _decode(path: str) -> bytes:
    import soundfile  # noqa: PLC0415 - in the child only: the parent never loads a codec
    import soxr  # noqa: PLC0415

    try:
        with soundfile.SoundFile(path) as file:
            rate = file.samplerate
            samples = file.read(_LONGEST_S * rate + 1, dtype="float32", always_2d=True)
    except (soundfile.LibsndfileError, ValueError, TypeError):
        samples, rate = np.empty((0, 1), np.float32), 0
    if not len(samples):  # FFmpeg also reads the headers of streamed files, which say that nothing follows
        samples, rate = _decode_container(path)
    if rate not in _RATES:
        raise BadInput(f"its header says {rate} Hz, which no recorder writes")
    if not len(samples):
        raise BadInput("it holds no audio")
    if len(samples) > _LONGEST_S * rate:
        raise BadInput(f"it is longer than {_LONGEST_S // 3600} hours: cut it first")
    mono = np.nan_to_num(samples.mean(axis=1, dtype=np.float32), nan=0.0, posinf=1.0, neginf=-1.0)
    at_16k = soxr.resample(mono, rate, RATE) if rate != RATE else mono
    return bytes((at_16k * 32_768).round().clip(-32_768, 32_767).astype("<i2").tobytes())


def _decode_container(path: str) -> tuple[NDArray[np.float32], int]:
    """Samples float32 [n, channels] and their rate, of the first audio stream. Damaged packets are left out."""
    import av  # noqa: PLC0415

    blocks, rate, size = [], 0, 0
    try:
        with av.open(path) as container:
            if not container.streams.audio:
                raise BadInput("it has no audio stream")
            # "flt" interleaves: one plane whose bytes are read by their true length. to_ndarray() is what crashes.
            interleave = av.AudioResampler(format="flt")
            for packet in container.demux(container.streams.audio[0]):
                try:
                    frames = [out for frame in packet.decode() for out in interleave.resample(frame)]
                except av.InvalidDataError:
                    continue
                for frame in frames:
                    channels, rate = frame.layout.nb_channels, frame.sample_rate
                    flat = np.frombuffer(bytes(frame.planes[0]), np.float32, count=frame.samples * channels)
                    blocks.append(flat.reshape(-1, channels).mean(axis=1, keepdims=True))
                    size += frame.samples
                if size > _LONGEST_S * max(rate, RATE):
                    break
    except (av.FFmpegError, ValueError) as error:
        raise BadInput("not audio that FFmpeg can read; raw PCM needs a WAV header first") from error
    return np.concatenate(blocks) if blocks else np.empty((0, 1), np.float32), rate or RATE


if __name__ == "__main__":
    _serve(Connection(int(sys.argv[1])))
