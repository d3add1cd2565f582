"""What a client sends, on its way into the session: messages to samples, samples to the ring, the ring to chunks."""

from collections.abc import Awaitable, Callable

from gateway import session
from gateway.audio import AudioDecoder
from gateway.feed import Feed
from gateway.handshake import Message
from gateway.ingest import Ingest
from gateway.messages import control_of
from gateway.place import SAMPLE_RATE, restart_at
from gateway.ring import RingBuffer
from gateway.sessions import Held
from shared.errors import BadInput
from shared.protocol import EndOfAudio, Flush, Ping, Pong
from shared.redis_client import RedisClients
from shared.settings import GatewaySettings


class Intake:
    """One connection's way in."""

    def __init__(
        self,
        clients: RedisClients,
        held: Held,
        settings: GatewaySettings,
        restore: Callable[[], Awaitable[int]],
    ) -> None:
        options = held.options
        self.state = session.State.ENDING if held.over else session.State.STREAMING
        self._rate = options.sample_rate
        self._over = held.over
        self._ingest = Ingest(clients, held, keep_s=settings.keep_s, before_repeat=restore)
        again = restart_at(held.place, options.sample_rate)
        self._decoder = AudioDecoder(options, taken=again.sample, skip=again.skip)
        ring = RingBuffer(int(settings.ring_s * SAMPLE_RATE) * 2, options.when_full, held.place.samples)
        chunk_bytes = SAMPLE_RATE * options.chunk_ms // 1000 * 2
        self._feed = Feed(ring, self._ingest, chunk_bytes, settings.backlog_chunks)

    async def feed(self) -> None:
        """Append what comes in until its end, or until it is left."""
        if not self._over:
            await self._feed.run()

    async def check(self) -> None:
        """See whether the session is still there, whole and ours. Raises as Ingest.check does."""
        await self._ingest.check()

    async def take(self, message: Message) -> Pong | BadInput | None:
        """Handle one message of the client; an answer, or what was wrong with the end of its audio.

        Raises BadInput for what ends the session.
        """
        if message.get("bytes") is not None:
            self.state = session.after(self.state, "audio")
            await self._feed.write(self._decoder.feed(message["bytes"]))
            return None
        control = control_of(message["text"])
        before, self.state = self.state, session.after(self.state, control.type)
        if isinstance(control, Ping):
            safe = restart_at(self._ingest.place, self._rate).sample
            return Pong(id=control.id, chunk=self._ingest.seq, sample=safe)
        if isinstance(control, Flush):
            await self._feed.write(self._decoder.finish())
            self._feed.mark("flush", control.id.encode(), self._decoder.taken)
        elif isinstance(control, EndOfAudio) and before is not session.State.ENDING:
            return await self._end()
        return None

    async def cut(self) -> None:
        """End the audio here, as if its client had. Whatever it says afterwards must not be taken."""
        if self.state is not session.State.ENDING:
            self.state = session.State.ENDING
            await self._end()

    def leave(self, *, comes_back: bool) -> None:
        """Nothing more comes in here: append what is whole, and the end unless the client may come back."""
        if self.state is not session.State.ENDING:
            self._feed.mark("pause" if comes_back else "end")

    async def _end(self) -> BadInput | None:
        await self._feed.write(self._decoder.finish())
        self._feed.mark("end")
        try:
            self._decoder.require_whole()
        except BadInput as error:
            return error
        return None
