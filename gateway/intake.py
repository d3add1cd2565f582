"""What a client sends, on its way into its session: messages to a source of samples, by the rules of what may come when."""

import asyncio

from gateway import session
from gateway.container_stream import ContainerDecoders
from gateway.dialects.base import Audio, Begin, Said
from gateway.lines import Lines
from gateway.opening import Opening
from gateway.rate_check import RateCheck
from gateway.sources import Source
from shared.errors import BadInput
from shared.protocol import Advice, EndOfAudio, Flush, Ping, Pong


class Intake:
    """One call's way in."""

    def __init__(self, lines: Lines, decoders: ContainerDecoders) -> None:
        self._lines = lines
        self.state = session.State.ENDING if lines.over else session.State.STREAMING
        # Fails with what is wrong with a container, which may come out while nothing is taken.
        self.trouble: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._check = RateCheck(lines.options)
        self._opening = Opening(lines, decoders, self.trouble, self._check)
        self._source: Source | None = self._opening.raw()

    async def take(self, said: Said) -> Pong | Advice | BadInput | None:
        """Handle what the client says; an answer, advice, or what was wrong with the end of its audio.

        Raises BadInput for what ends the session, Overloaded for one container too many.
        """
        if isinstance(said, Begin):
            self.state = session.after(self.state, "begin")
        elif isinstance(said, Audio):
            self.state = session.after(self.state, "audio")
            await self._take(said.data)
            return await self._check.advice()
        elif isinstance(said, Ping):
            self.state = session.after(self.state, "ping")
            chunk, sample = self._lines.safe
            return Pong(id=said.id, chunk=chunk, sample=sample)
        elif isinstance(said, Flush):
            self.state = session.after(self.state, "flush")
            await self._flush(said.id)
        elif isinstance(said, EndOfAudio):
            before, self.state = self.state, session.after(self.state, "end")
            if before is not session.State.ENDING:
                return await self._end()
        return None

    async def cut(self) -> None:
        """End the audio here, as if its client had. Whatever it says afterwards must not be taken."""
        if self.state is not session.State.ENDING:
            self.state = session.State.ENDING
            await self._end()

    def leave(self, *, comes_back: bool) -> None:
        """Nothing more comes in here."""
        if self.state is not session.State.ENDING:
            (self._source or self._lines).leave(comes_back=comes_back)

    async def close(self) -> None:
        """Nobody waits for anything any more."""
        if self._source:
            await self._source.close()
        if self.trouble.done():
            self.trouble.exception()  # else asyncio reports that nobody has asked for it
        self.trouble.cancel()

    async def _take(self, data: bytes) -> None:
        if self._source:
            await self._source.take(data)
        elif data:
            self._opening.head += data
            await self._open(all_there=False)

    async def _open(self, *, all_there: bool) -> Source | None:
        """The source; None while there were too few bytes to tell which, or none at all."""
        if self._source is None and self._opening.head:
            self._source = await self._opening.source(all_there=all_there)
            if self._source:
                head, self._opening.head = self._opening.head, b""
                await self._source.take(head)
        return self._source

    async def _flush(self, flush_id: str) -> None:
        if source := await self._open(all_there=True):
            await source.flush(flush_id)
        else:
            self._lines.flush(flush_id, self._lines.sample)

    async def _end(self) -> BadInput | None:
        try:
            if source := await self._open(all_there=True):
                return await source.end()
        except BadInput as error:
            self._lines.end()
            return error
        self._lines.end()
        return None
