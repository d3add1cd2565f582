"""Where a call's samples come from: raw audio and WAV files decoded here, or a container decoded by a child."""

import asyncio
from abc import ABC, abstractmethod

from gateway.audio import PcmDecoder
from gateway.container_stream import ContainerStream, Passed, Paused
from gateway.lines import Lines
from gateway.rate_check import RateCheck
from shared.errors import BadInput
from shared.tasks import cancel


class Source(ABC):
    """Takes the client's bytes, and puts samples and marks on the lines."""

    @abstractmethod
    async def take(self, data: bytes) -> None:
        """Raises BadInput when this is plainly not what was announced."""

    @abstractmethod
    async def flush(self, flush_id: str) -> None:
        """Set a mark after all that was taken."""

    @abstractmethod
    async def end(self) -> BadInput | None:
        """No more comes: what was wrong with the end, should it be known at once."""

    @abstractmethod
    def leave(self, *, comes_back: bool) -> None:
        """Nothing more comes in here: see to it that the lines end, after what was taken."""

    async def close(self) -> None:  # noqa: B027 - samples keep nothing
        """Nobody waits for anything any more."""


class Samples(Source):
    def __init__(self, decoder: PcmDecoder, lines: Lines, check: RateCheck | None = None) -> None:
        """`check`: where the client announced the rate; a WAV file says its own."""
        self._decoder = decoder
        self._lines = lines
        self._check = check

    async def take(self, data: bytes) -> None:
        samples = self._decoder.feed(data)
        await self._lines.write(samples)
        if self._check:
            self._check.hear(samples)

    async def flush(self, flush_id: str) -> None:
        await self._lines.write(self._decoder.finish())
        self._lines.flush(flush_id, self._decoder.taken)

    async def end(self) -> BadInput | None:
        await self._lines.write(self._decoder.finish())
        self._lines.end()
        try:
            self._decoder.require_whole()
        except BadInput as error:
            return error
        return None

    def leave(self, *, comes_back: bool) -> None:
        self._lines.leave(comes_back=comes_back)


class Contained(Source):
    """A container. What is wrong with it comes out while nobody asks: `trouble` then fails with it."""

    def __init__(self, stream: ContainerStream, lines: Lines, trouble: asyncio.Future[None]) -> None:
        self._stream = stream
        self._lines = lines
        self._trouble = trouble
        self._pumping = asyncio.create_task(self._pump(), name="container")
        self._pumping.add_done_callback(self._over)

    async def take(self, data: bytes) -> None:
        await self._stream.feed(data)

    async def flush(self, flush_id: str) -> None:
        self._stream.mark(flush_id.encode())

    async def end(self) -> BadInput | None:
        self._stream.end()
        return None

    def leave(self, *, comes_back: bool) -> None:
        if comes_back:
            self._stream.pause()
        else:
            self._stream.end()

    async def close(self) -> None:
        await cancel([self._pumping])
        await self._stream.close()

    async def _pump(self) -> None:
        async for part in self._stream:
            if isinstance(part, Passed):
                self._lines.flush(part.token.decode(), part.taken)
            elif isinstance(part, Paused):
                self._lines.leave(comes_back=True)
                return
            else:
                await self._lines.write(part)
        self._lines.end()

    def _over(self, pumping: asyncio.Task[None]) -> None:
        if not pumping.cancelled() and (error := pumping.exception()):
            self._lines.end()  # what came before it is decoded
            if not self._trouble.done():
                self._trouble.set_exception(error)
