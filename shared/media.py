"""Any audio or video file to the fleet's own format: 16 kHz, one channel, s16le.

Container libraries crash on some files, hang on others, and are the part of the system that an attacker would choose.
So they run in a child process (shared/media_child.py) that has little to lose: a limit on memory and CPU time, no core
files, no file to write, no new privileges, none of our environment with its passwords, and only bytes to answer with. It
can still read what its user can read and open sockets: for untrusted input run the whole under a user of its own.
"""

import subprocess
import sys
import threading
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from shared.errors import BadInput

RATE = 16_000
_HOUR_S = 3600
_CHILD = Path(__file__).with_name("media_child.py")

# Of every child that decodes. In a session of its own Ctrl-C does not reach it. What codecs write to standard error is
# about bytes, not for people. Threads of a linear algebra library would only reserve memory.
CHILD_OPTIONS: dict[str, Any] = {
    "start_new_session": True,
    "stderr": subprocess.DEVNULL,
    "env": {"OPENBLAS_NUM_THREADS": "1"},
}


def command_of(child: Path, *arguments: int) -> list[str]:
    """The command line of a child, which confines itself (shared/media_sandbox.py)."""
    return [sys.executable, "-I", str(child), *map(str, arguments)]


class MediaDecoder:
    """Decodes files one at a time in a child that it starts when needed and replaces when it dies.

    On Linux the child dies with the thread that made it start: decode in one that lives as long as the decoder.
    """

    def __init__(
        self, *, timeout_s: float = 120.0, longest_s: int = 6 * _HOUR_S, memory_bytes: int = 4 << 30
    ) -> None:
        """Limits of one file: time to decode it, its length, and the child's address space (an idle one has 1 GB)."""
        self._timeout_s = timeout_s
        self._longest_s = longest_s
        self._memory_bytes = memory_bytes
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

    def abort(self) -> None:
        """Have a `decode` that goes on in another thread fail now."""
        if child := self._child:
            child.kill()

    def _ask(self, path: Path) -> tuple[bytes, str]:
        pipe = self._pipe or self._start()
        try:
            pipe.send_bytes(str(path.absolute()).encode(errors="surrogateescape"))
            if pipe.poll(self._timeout_s):
                # Bytes, never pickles: those could make us run whatever a hijacked child likes.
                answer = pipe.recv_bytes(2 * RATE * self._longest_s + 1)
                return (answer[1:], "") if answer[:1] == b"+" else (b"", answer[1:].decode(errors="replace"))
            problem = f"not decoded within {self._timeout_s:g} s; convert it with ffmpeg first"
        except (EOFError, OSError):
            problem = "the decoder crashed on it; convert it with ffmpeg first"
        self.close()
        return b"", problem

    def _start(self) -> Connection:
        # Not multiprocessing.Process: that leaves its resource tracker running for a moment after we are gone.
        self._pipe, theirs = Pipe()
        fd = theirs.fileno()
        limits = (self._longest_s, self._memory_bytes, max(1, round(self._timeout_s)))
        self._child = subprocess.Popen(
            command_of(_CHILD, fd, *limits),
            pass_fds=[fd],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            **CHILD_OPTIONS,
        )
        theirs.close()
        return self._pipe
