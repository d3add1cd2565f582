"""Standard input as it comes in: a file, a pipe from another program, or from a microphone."""

import asyncio
import os
import threading
from collections.abc import AsyncIterator
from contextlib import suppress

_READ = 65_536
# Read ahead while a fleet starts or is behind: a recorder that is not read from for 2 s loses audio. It writes pieces
# of 125 ms; those of a file are of 64 KiB.
_PIECES = 1024


class StandardInput:
    """A thread reads, because a read of a pipe can not be cancelled; a descriptor set to non-blocking would be so for others too."""

    def __init__(self, descriptor: int = 0) -> None:
        self._descriptor = descriptor
        self._loop = asyncio.get_running_loop()
        self._pieces: asyncio.Queue[bytes] = asyncio.Queue()
        self._room = threading.Semaphore(_PIECES)
        threading.Thread(target=self._read, name="standard input", daemon=True).start()

    def end(self) -> None:
        """Take what is there already as all there is."""
        self._pieces.put_nowait(b"")

    async def pieces(self, idle_s: float) -> AsyncIterator[bytes]:
        """What comes in, as it comes in; b"" after each `idle_s` seconds without anything."""
        while True:
            try:
                async with asyncio.timeout(idle_s):
                    piece = await self._pieces.get()
            except TimeoutError:
                yield b""
                continue
            if not piece:
                return
            self._room.release()
            yield piece

    def _read(self) -> None:
        piece = b"."
        with suppress(RuntimeError):  # the loop has been closed: nobody listens any more
            while piece:
                self._room.acquire()
                piece = self._next()
                self._loop.call_soon_threadsafe(self._pieces.put_nowait, piece)

    def _next(self) -> bytes:
        try:
            return os.read(self._descriptor, _READ)
        except OSError:  # closed (`<&-`): it holds nothing
            return b""
