"""A session's way into Redis: its numbered chunks, how far the fleet has got with them, and those Redis may yet lose."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import structlog

from gateway.place import SAMPLE_RATE, Place
from gateway.sessions import Held
from shared import metrics
from shared.clock import mono_ms, wall_ms
from shared.errors import Overloaded, RedisUnavailable, Replaced, SessionLost
from shared.keys import STAGES
from shared.redis_client import RedisClients, translated

log = structlog.get_logger()

# How long a chunk is offered to a Redis that does not answer, or has no memory, before the session is given up.
RETRY_S = 60.0
_RETRY_PAUSE_S = 0.1
KEEP_S = 30.0


@dataclass(frozen=True, slots=True)
class _Entry:
    kind: str  # audio | gap | flush | end
    payload: bytes
    received_ms: float
    start: int  # sample of the session, at 16 kHz, that it begins at
    place: Place  # after it


async def _nothing() -> int:
    return 0


class Ingest:
    """Appends a session's chunks and marks, in order, each exactly once.

    A failover or a restart may bring back an older Redis. What was appended lately is kept (`keep_s` of audio) and
    appended again, after `before_repeat` has put right what else was lost; it returns the newest utterance told.
    """

    def __init__(
        self,
        clients: RedisClients,
        held: Held,
        *,
        keep_s: float = KEEP_S,
        before_repeat: Callable[[], Awaitable[int]] = _nothing,
    ) -> None:
        self._clients = clients
        self._session = held.session
        self._holder = held.holder
        self._keep_bytes = int(keep_s * SAMPLE_RATE) * 2
        self._before_repeat = before_repeat
        self.seq = held.fed
        self.place = held.place
        self._kept: deque[_Entry] = deque()  # the newest ones, of numbers up to seq
        self._kept_bytes = 0
        self._lock = asyncio.Lock()

    async def append(self, kind: str, payload: bytes, received_ms: float, theirs: int = 0) -> None:
        """Append one entry that was complete at `received_ms` (Unix). The number makes a retry harmless.

        `theirs`: of a flush, the samples the client had sent. Raises RedisUnavailable, Overloaded, SessionOver, SessionLost.
        """
        start, place = self.place.samples, _after(self.place, kind, payload, theirs)
        async with self._lock:
            entry = _Entry(kind, payload, received_ms, start, place)
            fed = await self._offer(self.seq + 1, entry)
            while fed <= self.seq:
                await self._repeat(fed)
                fed = await self._offer(self.seq + 1, entry)
            self._keep(entry)
        metrics.CHUNKS.inc()

    async def check(self) -> None:
        """See whether Redis still has what was appended, and this connection the session. Raises as `append` does."""
        keys, commands = self._clients.keys, self._clients.commands
        async with self._lock:
            names = [keys.meta(self._session)]
            for stage in STAGES:
                names += [keys.state(self._session, stage), keys.ready_of(self._session, stage)]
            fed = int(await self._clients.run("heal", names, [self._session, wall_ms()]))
            with translated():
                status, holder = await commands.hmget(keys.meta(self._session), "status", "holder")
            if status is None:
                raise SessionLost("Redis has lost the session, or it has expired: open a new one")
            if int(holder) > self._holder:
                raise Replaced("another connection has resumed this session")
            if fed < self.seq and status == b"open":
                await self._repeat(fed)

    async def backlog(self) -> int:
        """Chunks appended but not yet decoded, at the stage that is furthest behind."""
        pipe = self._clients.commands.pipeline(transaction=False)
        for stage in STAGES:
            pipe.hmget(self._clients.keys.state(self._session, stage), "seq", "fed")
        with translated():
            stages = [(int(seq or 0), int(fed or 0)) for seq, fed in await pipe.execute()]
        return self.seq - min([stages[0][0], *(seq for seq, fed in stages[1:] if seq < fed)])

    async def _offer(self, seq: int, entry: _Entry) -> int:
        """The newest entry's number, once Redis has said it."""
        keys, sid = self._clients.keys, self._session
        names = [
            keys.inputs(sid, "frontend"),
            keys.state(sid, "frontend"),
            keys.ready_of(sid, "frontend"),
            keys.meta(sid),
            keys.open_sessions_of(sid),
        ]
        args = [seq, entry.kind, entry.payload, sid, entry.received_ms, wall_ms(), self._clients.ttl_ms]
        args += [self._holder, entry.place.dump()]
        give_up = mono_ms() + RETRY_S * 1000
        while True:
            try:
                return int(await self._clients.run("append", names, args))
            except (RedisUnavailable, Overloaded):
                if mono_ms() > give_up:
                    raise
                await asyncio.sleep(_RETRY_PAUSE_S)

    async def _repeat(self, fed: int) -> None:
        """Append again what Redis lost after entry `fed`; a gap mark in place of what is not kept any more."""
        log.warning("redis_lost_chunks", session=self._session, had=self.seq, has=fed)
        told = await self._before_repeat()
        first_kept = self.seq - len(self._kept) + 1
        entries = list(self._kept)[max(0, fed + 1 - first_kept) :]
        if fed + 1 < first_kept:
            gap = await self._lost(self._kept[0].start if self._kept else self.place.samples, told)
            self._kept.appendleft(gap)
            entries.insert(0, gap)
        self.seq = fed + len(entries)
        metrics.REPEATED.inc(len(entries))
        for seq, entry in enumerate(entries, fed + 1):
            has = await self._offer(seq, entry)
            if has < seq:  # lost again
                await self._repeat(has)
                return

    async def _lost(self, end: int, told: int) -> _Entry:
        """A gap mark for the audio between what Redis has and sample `end`: utterances in it may have been told."""
        key = self._clients.keys.state(self._session, "frontend")
        with translated():
            had = Place.read(await self._clients.commands.hget(key, "at") or b"")
        payload = f"{had.samples}:{end}:redis_lost_data:{told}".encode()
        return _Entry("gap", payload, wall_ms(), had.samples, had._replace(samples=end))

    def _keep(self, entry: _Entry) -> None:
        self.seq += 1
        self.place = entry.place
        self._kept.append(entry)
        self._kept_bytes += len(entry.payload)
        while self._kept_bytes > self._keep_bytes:
            self._kept_bytes -= len(self._kept.popleft().payload)


def _after(place: Place, kind: str, payload: bytes, theirs: int) -> Place:
    if kind == "audio":
        return place._replace(samples=place.samples + len(payload) // 2)
    if kind == "gap":
        return place._replace(samples=int(payload.split(b":")[1]))
    if kind == "flush":
        return place._replace(flushes=place.flushes + 1, base_theirs=theirs, base_ours=place.samples)
    return place
