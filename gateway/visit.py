"""One connection's stay: its principal's limits from the door until it leaves."""

import asyncio
import contextlib

import structlog

from gateway import quota
from gateway.bucket import Bucket
from gateway.sessions import Held
from shared.access import Principal
from shared.clock import mono_ms, wall_ms
from shared.errors import BadInput, QuotaExceeded, ScribeError
from shared.redis_client import RedisClients
from shared.tasks import cancel

log = structlog.get_logger()

# How often seats are renewed and audio is counted. What a killed gateway had not counted is not charged.
TICK_S = 5.0
BURST_S = 10.0
_RATE_RETRY_S = 1.0


class Visit:
    """start ──> counting ──stop──> gone. `session`: the id of the session it opens, or comes back to."""

    def __init__(self, clients: RedisClients, principal: Principal, session: str) -> None:
        self.principal = principal
        self.session = session
        self._clients = clients
        self._limits = principal.limits
        self._bucket = Bucket(self._limits.messages_per_s or 0, BURST_S * (self._limits.messages_per_s or 0))
        self._started = mono_ms()
        self._heard_here = 0.0  # milliseconds, not yet counted in Redis
        self._heard_ms = 0  # the owner's today, as of the last count
        self._out_of_audio = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Take a seat. Raises QuotaExceeded; RedisUnavailable or Overloaded where there are quotas to be counted."""
        if self._limits.audio_s_per_day:
            self._heard_ms = await quota.add_heard(self._clients, self.principal.id, 0)
            if self._heard_ms >= self._limits.audio_s_per_day * 1000:
                raise quota.out_of_audio(self._limits.audio_s_per_day)
        await self._sit(self._limits.sessions or 0)
        if self._limits.sessions or self._limits.audio_s_per_day:
            self._task = asyncio.create_task(self._run(), name="visit")

    async def holds(self, held: Held) -> None:
        """The session is known now. One that is resumed by message brings its own seat, and its age."""
        if held.resumed:
            created_ms = float(await self._clients.meta_field(held.session, "created_ms") or wall_ms())
            self._started = mono_ms() - max(0, wall_ms() - created_ms)
        if held.session != self.session:
            guest, self.session = self.session, held.session
            await self._sit(0)
            if self._limits.sessions:
                await quota.leave_seat(self._clients, self.principal.id, guest)

    def take(self, data: str | bytes) -> None:
        """Take notice of a message. Raises BadInput for one that is too large, QuotaExceeded for one too many."""
        largest, rate = self._limits.frame_bytes, self._limits.messages_per_s
        if largest and len(data) > largest:
            raise BadInput(f"a message of {len(data)} bytes: this key may send {largest} at most")
        if not self._bucket.take():
            raise QuotaExceeded(
                f"this key may send {rate:g} messages a second: put 20 to 100 ms of audio in each",
                retry_after_s=_RATE_RETRY_S,
            )

    def heard(self, audio_ms: float) -> None:
        """Take notice of audio; each channel with a transcript of its own counts."""
        self._heard_here += audio_ms
        self._look()

    async def over(self) -> QuotaExceeded:
        """Wait until the session may not go on, and say why."""
        longest, audio = self._limits.session_s, self._limits.audio_s_per_day
        left = longest - (mono_ms() - self._started) / 1000 if longest else None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(left):
                await self._out_of_audio.wait()
            return quota.out_of_audio(audio or 0)
        return QuotaExceeded(f"a session may last {longest:g} s: open a new one")

    async def stop(self, *, comes_back: bool) -> None:
        """Count the rest, and leave the seat unless the client may come back: then its lease runs out."""
        await cancel([self._task])
        with contextlib.suppress(ScribeError):  # the lease ends by itself
            await self._count()
            if self._limits.sessions and not comes_back:
                await quota.leave_seat(self._clients, self.principal.id, self.session)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            try:
                await self._count()
                await self._sit(0)
            except ScribeError as error:
                # It goes on: a session is not ended because its use can't be counted.
                log.warning("use_not_counted", session=self.session, why=str(error))

    async def _count(self) -> None:
        heard = int(self._heard_here)
        if not (self._limits.audio_s_per_day and heard):
            return
        self._heard_here -= heard
        self._heard_ms = await quota.add_heard(self._clients, self.principal.id, heard)
        self._look()

    async def _sit(self, seats: int) -> None:
        if self._limits.sessions:
            await quota.take_seat(self._clients, self.principal.id, self.session, seats)

    def _look(self) -> None:
        """See whether today's audio is used up, as far as is known here."""
        most = self._limits.audio_s_per_day
        if most and self._heard_ms + self._heard_here > most * 1000:
            self._out_of_audio.set()
