"""What a client sends, on its way into its session: messages to samples, samples to one line for each channel."""

from collections.abc import Sequence

from gateway import session
from gateway.audio import AudioDecoder, split
from gateway.dialects.base import Audio, Begin, Said
from gateway.line import Line
from gateway.place import Place, restart_of
from shared.errors import BadInput
from shared.protocol import EndOfAudio, Flush, Ping, Pong


class Intake:
    """One call's way in."""

    def __init__(self, lines: Sequence[Line]) -> None:
        self._lines = lines
        self._options = lines[0].held.options
        over = all(line.held.over for line in lines)
        self.state = session.State.ENDING if over else session.State.STREAMING
        self.heard = 0  # samples at 16 kHz, all channels together
        sample, start = self._restart()
        for line in lines:
            line.expect(start)
        self._decoder = AudioDecoder(self._options, taken=sample)

    async def take(self, said: Said) -> Pong | BadInput | None:
        """Handle what the client says; an answer, or what was wrong with the end of its audio.

        Raises BadInput for what ends the session.
        """
        if isinstance(said, Begin):
            self.state = session.after(self.state, "begin")
        elif isinstance(said, Audio):
            self.state = session.after(self.state, "audio")
            await self._write(self._decoder.feed(said.data))
        elif isinstance(said, Ping):
            self.state = session.after(self.state, "ping")
            return Pong(id=said.id, chunk=min(line.seq for line in self._lines), sample=self._restart()[0])
        elif isinstance(said, Flush):
            self.state = session.after(self.state, "flush")
            await self._write(self._decoder.finish())
            for line in self._lines:
                line.flush(said.id, self._decoder.taken)
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
            for line in self._lines:
                line.leave(comes_back=comes_back)

    async def _write(self, samples: bytes) -> None:
        self.heard += len(samples) // 2
        for line, own in zip(self._lines, split(samples, len(self._lines)), strict=True):
            await line.write(own)

    async def _end(self) -> BadInput | None:
        await self._write(self._decoder.finish())
        for line in self._lines:
            line.end()
        try:
            self._decoder.require_whole()
        except BadInput as error:
            return error
        return None

    def _restart(self) -> tuple[int, Place]:
        return restart_of([line.place for line in self._lines], self._options.sample_rate)
