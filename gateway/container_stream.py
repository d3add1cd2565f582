"""Decodes containers while they come in, each in a child process of its own (shared/stream_child.py).

Like files (shared/media.py says why a child), but piece by piece, with marks at their places, and with back-pressure both ways: who
does not read what was decoded holds up the child, and the child whoever feeds it.
"""

import asyncio
import contextlib
from asyncio.subprocess import PIPE, Process
from collections import deque
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import NamedTuple

import shared
from shared import stream_wire as wire
from shared.errors import BadInput, Overloaded
from shared.media import CHILD_OPTIONS, command_of

_CHILD = Path(shared.__file__).with_name("stream_child.py")
# Idle it has 0.2 GB of addresses, and 20 MB of its own; a spooled MP4 is there once, with its index.
MEMORY_BYTES = 1 << 30
SPOOL_BYTES = 64 << 20
CPU_S = 10  # of computing for one message, 1 MiB
STUCK_S = 20.0
_LARGEST = 1 << 24
_RETRY_S = 5.0


class Passed(NamedTuple):
    """A mark: all that was fed before it has been given."""

    token: bytes
    taken: int  # samples of each channel before it, at the container's rate


class Paused(NamedTuple):
    """Nothing more comes; all that is certain has been given."""


class ContainerStream:
    """One container. Feed it from one task and iterate over it in another; close it in any case."""

    def __init__(
        self,
        process: Process,
        what: str,
        start: wire.Start,
        *,
        stuck_s: float,
        gone: Callable[["ContainerStream"], None],
    ) -> None:
        """`what`: the kind of container, with its article. `gone`: called when the child is."""
        assert process.stdin
        assert process.stdout
        self._process = process
        self._stdin, self._stdout = process.stdin, process.stdout
        self._what = what
        self._gone = gone
        self._stuck_s = stuck_s
        self._asked: deque[float] = deque()  # when the marks were set that have not come back
        self._holds_us_since: float | None = None
        self._ending: asyncio.Task[None] | None = None
        self._say(wire.START, start.dump())

    async def feed(self, data: bytes) -> None:
        """Waits while the child has enough to do. What is wrong with the data is said to the reader."""
        self._holds_us_since = _now()
        try:
            self._say(wire.DATA, data)
            await self._stdin.drain()
        except ConnectionError:  # it died, or knows enough to say that this is no audio
            pass
        finally:
            self._holds_us_since = None

    def mark(self, token: bytes) -> None:
        self._asked.append(_now())
        self._say(wire.MARK, token)

    def pause(self) -> None:
        self._asked.append(_now())
        self._say(wire.PAUSE, b"")

    def end(self) -> None:
        self._asked.append(_now())
        self._say(wire.END, b"")

    async def __aiter__(self) -> AsyncIterator[bytes | Passed | Paused]:
        """Samples (s16le, 16 kHz) and marks, up to the end or a pause. Raises BadInput."""
        while True:
            kind, payload = await self._hear()
            if kind == wire.PCM:
                yield payload
            elif kind == wire.MARK:
                self._asked.popleft()
                size = wire.PLACE.size
                yield Passed(payload[size:], *wire.PLACE.unpack(payload[:size]))
            elif kind == wire.PAUSE:
                yield Paused()
                return
            elif kind == wire.DONE:
                return
            else:
                raise self._wrong(payload.decode(errors="replace"))

    async def close(self) -> None:
        """End the child, whatever it is doing; also if who waits for that is cancelled."""
        if self._ending is None:
            self._ending = asyncio.create_task(self._end(), name="decoder's end")
        await asyncio.shield(self._ending)

    async def _end(self) -> None:
        await end(self._process)
        self._gone(self)

    def _say(self, kind: bytes, payload: bytes) -> None:
        if not self._stdin.is_closing():
            self._stdin.write(wire.framed(kind, payload))

    async def _hear(self) -> tuple[bytes, bytes]:
        try:
            kind, size = wire.HEAD.unpack(await self._read(wire.HEAD.size))
            if size > _LARGEST or (kind == wire.MARK and not (self._asked and size >= wire.PLACE.size)):
                raise self._wrong("something in it took its decoder over")
            return kind, await self._read(size)
        except asyncio.IncompleteReadError as error:
            raise self._wrong("it crashed the decoder; convert it with ffmpeg first") from error

    async def _read(self, size: int) -> bytes:
        while True:
            try:
                async with asyncio.timeout(self._stuck_s):
                    return await self._stdout.readexactly(size)
            except TimeoutError as error:
                since = [*self._asked, self._holds_us_since or _now()]
                if _now() - min(since) >= self._stuck_s:
                    raise self._wrong("its decoder got stuck; convert it with ffmpeg first") from error

    def _wrong(self, why: str) -> BadInput:
        return BadInput(f"{self._what} arrived, but {why}")


class ContainerDecoders:
    """All the children of a gateway. start ──> serving ──quiet──> no more ──stop──> stopped

    From the first container on one child waits for the next: importing the codecs takes it 0.3 s.
    """

    def __init__(
        self,
        most: int,
        *,
        stuck_s: float = STUCK_S,
        cpu_s: int = CPU_S,
        memory_bytes: int = MEMORY_BYTES,
        spool_bytes: int = SPOOL_BYTES,
    ) -> None:
        """`most`: containers at a time."""
        self._most = most
        self._stuck_s = stuck_s
        self._limits = (memory_bytes, cpu_s, spool_bytes)
        self._open: set[ContainerStream] = set()
        self._opening = 0
        self._spare: asyncio.Task[Process] | None = None
        self._quiet = False

    async def start(self) -> None:
        """Nothing: many gateways never see a container."""

    def quiet(self) -> None:
        """Keep no spare child any more."""
        self._quiet = True

    async def stop(self, deadline_s: float) -> None:
        """End the children; whoever uses one has been ended before. None of them has anything to finish."""
        self.quiet()
        async with asyncio.timeout(deadline_s):
            for stream in list(self._open):
                await stream.close()
            if self._spare:
                await end(await self._spare)
                self._spare = None

    async def open(self, what: str, start: wire.Start) -> ContainerStream:
        """Raises Overloaded when there are too many."""
        if len(self._open) + self._opening >= self._most:
            raise Overloaded(
                f"{self._most} containers are being decoded here already; send raw samples, or try again later",
                retry_after_s=_RETRY_S,
            )
        self._opening += 1
        try:
            process = await self._child()
        finally:
            self._opening -= 1
        stream = ContainerStream(process, what, start, stuck_s=self._stuck_s, gone=self._open.discard)
        self._open.add(stream)
        return stream

    async def _child(self) -> Process:
        spare, self._spare = self._spare, None
        process = await (spare or self._start())
        if process.returncode is not None:  # somebody ended it
            process = await self._start()
        if not self._quiet:
            self._spare = asyncio.create_task(self._start(), name="spare decoder")
        return process

    async def _start(self) -> Process:
        # Away from this thread it would be a new thread's child, and die with that (PR_SET_PDEATHSIG).
        return await asyncio.create_subprocess_exec(
            *command_of(_CHILD, *self._limits), stdin=PIPE, stdout=PIPE, **CHILD_OPTIONS
        )


async def end(process: Process) -> None:
    """Kill it and wait: it holds nothing that could be lost."""
    assert process.stdin
    assert process.stdout
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    process.stdin.close()
    # asyncio keeps the process until its output is read, and stops reading while nobody wants it.
    while await process.stdout.read(1 << 16):
        pass
    await process.wait()


def _now() -> float:
    return asyncio.get_running_loop().time()
