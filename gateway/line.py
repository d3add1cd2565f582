"""One session at this gateway: samples on their way in, events on their way out."""

from gateway.feed import Feed
from gateway.ingest import Ingest
from gateway.place import SAMPLE_RATE, Place
from gateway.relay import Relay
from gateway.ring import RingBuffer
from gateway.sessions import Held
from shared.redis_client import RedisClients
from shared.settings import GatewaySettings
from shared.transcripts import Follower


class Line:
    """Of a client's call, the part of one channel."""

    def __init__(
        self, clients: RedisClients, held: Held, follower: Follower, settings: GatewaySettings
    ) -> None:
        self.held = held
        self.relay = Relay(clients, follower, held)
        self._ingest = Ingest(clients, held, keep_s=settings.keep_s, before_repeat=self.relay.restore)
        ring = RingBuffer(int(settings.ring_s * SAMPLE_RATE) * 2, held.options.when_full, held.place.samples)
        chunk_bytes = SAMPLE_RATE * held.options.chunk_ms // 1000 * 2
        self._feed = Feed(ring, self._ingest, chunk_bytes, settings.backlog_chunks)
        # What a client that came back sends again although this channel has it.
        self._known_bytes = self._known_flushes = 0

    @property
    def place(self) -> Place:
        return self._ingest.place

    @property
    def seq(self) -> int:
        return self._ingest.seq

    def contain(self) -> None:
        """A client that comes back has to send everything again."""
        self._ingest.place = self.place._replace(container=1)

    def expect(self, start: Place) -> None:
        """The audio that comes begins at this place, which may lie before the line's own."""
        self._known_bytes = (self.place.samples - start.samples) * 2
        self._known_flushes = self.place.flushes - start.flushes

    async def run(self) -> None:
        """Append what is written until its end, or until it is left."""
        if not self.held.over:
            await self._feed.run()

    async def check(self) -> None:
        """See whether the session is still there, whole and ours. Raises as Ingest.check does."""
        await self._ingest.check()
        await self.relay.check()

    async def write(self, samples: bytes) -> None:
        """Take samples; waits for room when the ring's policy is to block."""
        if self._known_bytes:
            known = min(self._known_bytes, len(samples))
            self._known_bytes -= known
            samples = samples[known:]
        if not self.held.over:
            await self._feed.write(samples)

    def flush(self, flush_id: str, theirs: int) -> None:
        """Set a flush mark. `theirs`: samples the client had sent."""
        if self._known_flushes:
            self._known_flushes -= 1
        elif not self.held.over:
            self._feed.mark("flush", flush_id.encode(), theirs)

    def end(self) -> None:
        if not self.held.over:
            self._feed.mark("end")

    def leave(self, *, comes_back: bool) -> None:
        """Nothing more comes in here: append what is whole, and the end unless the client may come back."""
        self._feed.mark("pause" if comes_back else "end")
