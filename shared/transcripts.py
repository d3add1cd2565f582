"""Following a session's transcript events: live from the channel, holes filled from the durable stream.

Pub/sub drops messages without a word (a slow reader, a reconnect), so a message only counts when its number is the
next one; otherwise, and whenever a channel has been silent for a while, the events stream is read.
"""

import asyncio
import json
from collections import deque
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import structlog

from shared import metrics
from shared.errors import RedisUnavailable, ScribeError
from shared.redis_client import RedisClients, translated
from shared.subscription import Subscription

log = structlog.get_logger()

# A silent channel is compared with the stream this often: one XRANGE of nothing.
CHECK_S = 2.0
# What the stream held and the channel did not bring after this time is not on its way: the connection is deaf.
GRACE_S = 0.5
OUTAGE_PAUSE_S = 0.2
# A reader this far behind is served from the stream instead of from memory.
QUEUE_LIMIT = 256
_HEAD = len(b'{"event":')


@dataclass(frozen=True)
class Numbered:
    """An event. All who follow its session here share the object."""

    number: int
    raw: bytes  # its JSON

    @cached_property
    def fields(self) -> dict[str, Any]:
        return cast("dict[str, Any]", json.loads(self.raw))


class TranscriptHub:
    """The subscriptions of all sessions that this process follows: one connection, or one for each partition."""

    def __init__(self, clients: RedisClients) -> None:
        self._clients = clients
        # Sharded channels of different partitions may be on different servers.
        count = clients.keys.partitions if clients.keys.sharded else 1
        self._subscriptions = [Subscription(clients, self._route) for _ in range(count)]
        self._followers: dict[str, set[Follower]] = {}

    async def start(self) -> None:
        for subscription in self._subscriptions:
            subscription.start()

    async def stop(self) -> None:
        for subscription in self._subscriptions:
            await subscription.stop()

    async def follow(self, session: str, after: int = 0) -> "Follower":
        """Events after number `after`. Subscribes first and reads the stream then, so no event falls between."""
        follower = Follower(self, session, after)
        followers = self._followers.setdefault(session, set())
        followers.add(follower)
        if len(followers) == 1:
            try:
                await self._subscription(session).add(self._clients.keys.channel(session))
            except ScribeError:
                await self.forget(follower)
                raise
        return follower

    async def forget(self, follower: "Follower") -> None:
        followers = self._followers.get(follower.session, set())
        followers.discard(follower)
        if not followers and self._followers.pop(follower.session, None) is not None:
            await self._subscription(follower.session).remove(self._clients.keys.channel(follower.session))

    def deaf(self, session: str) -> None:
        """The session's channel did not bring what the stream holds."""
        self._subscription(session).deaf()

    async def read(self, session: str, after: int, count: int = 200) -> list[Numbered]:
        """Stored events after number `after`."""
        with translated():
            entries = await self._clients.commands.xrange(
                self._clients.keys.events(session), f"{after + 1}-0", "+", count=count
            )
        return [Numbered(int(i.split(b"-")[0]), fields[b"e"]) for i, fields in entries]

    def _subscription(self, session: str) -> Subscription:
        return self._subscriptions[self._clients.keys.partition(session) % len(self._subscriptions)]

    def _route(self, channel: str, raw: bytes) -> None:
        event = Numbered(int(raw[_HEAD : raw.index(b",")]), raw)
        for follower in self._followers.get(channel.rsplit(":", 1)[1], ()):
            follower.offer(event)


class Follower:
    """An asynchronous iterator over one session's events, in order, without holes; ends when closed."""

    def __init__(self, hub: TranscriptHub, session: str, after: int) -> None:
        self.session = session
        self._hub = hub
        self._last = after
        self._queue: deque[Numbered] = deque()
        self._wake = asyncio.Event()
        self._stored = True  # the stream may hold something newer than the queue
        self._owed = 0  # newest event of the stream that a silent channel has not brought
        self._closed = False

    def offer(self, event: Numbered) -> None:
        """Take a message of the channel. Never blocks; a reader too far behind goes back to the stream."""
        if event.number >= self._owed:
            self._owed = 0
        if len(self._queue) >= QUEUE_LIMIT:
            self._queue.clear()
            self._stored = True
        else:
            self._queue.append(event)
        self._wake.set()

    def __aiter__(self) -> "Follower":
        return self

    async def __anext__(self) -> Numbered:
        while not self._closed:
            try:
                event = await self._next()
            except RedisUnavailable as error:
                # Who follows waits as for a silent session; what was said meanwhile is in the stream.
                log.info("events_not_read", session=self.session, error=str(error))
                self._stored = True
                await asyncio.sleep(OUTAGE_PAUSE_S)
                continue
            if event:
                self._last = event.number
                return event
        raise StopAsyncIteration

    def rewind(self, number: int) -> None:
        """Go on after event `number`, from the stream: what is queued may be numbered otherwise now."""
        self._last = number
        self._queue.clear()
        self._stored = True
        self._wake.set()

    async def close(self) -> None:
        """End the iteration, also one that is waiting; cancelling it is not enough (shared/tasks.py)."""
        self._closed = True
        self._wake.set()
        await self._hub.forget(self)

    async def _next(self) -> Numbered | None:
        while self._queue and self._queue[0].number <= self._last:
            self._queue.popleft()
        if self._queue and self._queue[0].number == self._last + 1:
            return self._queue.popleft()
        if self._queue or self._stored:
            await self._refill(hole=bool(self._queue))
            return None
        self._wake.clear()
        try:
            async with asyncio.timeout(GRACE_S if self._owed else CHECK_S):
                await self._wake.wait()
        except TimeoutError:
            await self._check()
        return None

    async def _check(self) -> None:
        """The channel is silent: has the session said something?"""
        if self._owed:
            self._hub.deaf(self.session)
            self._owed = 0
        await self._refill(hole=False)
        if self._queue:
            self._owed = self._queue[-1].number

    async def _refill(self, *, hole: bool) -> None:
        stored = await self._hub.read(self.session, self._last)
        self._stored = bool(stored)
        if hole:
            metrics.REFILLS.inc()
        if hole and not stored:
            # The channel says there are events that the stream has lost: go on with what there is.
            self._last = self._queue[0].number - 1
            log.warning("events_lost", session=self.session, after=self._last)
        last = stored[-1].number if stored else self._last
        self._queue = deque([*stored, *(event for event in self._queue if event.number > last)])
