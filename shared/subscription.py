"""Listening to channels over one connection, and beginning anew when it has gone deaf.

redis-py's pub/sub objects reconnect and subscribe again by themselves, but not in every case: after a slot was moved a
sharded one raises MOVED once and is silent for ever (4 of 6 runs, research/redis-pitfalls.md, fact 7), and the server
that a master was before a failover may stay connected and have nothing to say.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import structlog

from shared import metrics
from shared.clock import mono_ms
from shared.errors import RedisUnavailable, ScribeError
from shared.redis_client import RedisClients, translated
from shared.tasks import cancel

log = structlog.get_logger()

# Not more often than this: who reads one event late may be wrong about the connection.
REBUILD_S = 3.0
_PAUSE_S = 0.2
_POLL_S = 1.0


class Subscription:
    """start ──> listening ──stop──> stopped. `route` gets channel and payload of each message."""

    def __init__(self, clients: RedisClients, route: Callable[[str, bytes], None]) -> None:
        self._clients = clients
        self._route = route
        self._pubsub: Any = None
        self._channels: set[str] = set()
        self._some = asyncio.Event()  # there are channels: a connection without any cannot be read
        self._deaf = False
        self._rebuilt_ms = -1000 * REBUILD_S
        self._task: asyncio.Task[None] | None = None
        # redis-py's first subscribe opens the connection; of several at once all but the last subscribe on one nobody reads.
        self._subscribing = asyncio.Lock()

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="subscription")

    async def stop(self) -> None:
        await cancel([self._task])
        if self._pubsub is not None:
            await self._pubsub.aclose()

    async def add(self, channel: str) -> None:
        """Returns when the server was asked. Raises RedisUnavailable, Misconfigured."""
        self._channels.add(channel)
        self._some.set()
        await self._subscribe([channel])

    async def remove(self, channel: str) -> None:
        self._channels.discard(channel)
        if not self._channels:
            self._some.clear()
        if self._pubsub is not None:
            with translated():
                await self._call("unsubscribe")(channel)

    def deaf(self) -> None:
        """Somebody knows of a message that did not come."""
        if mono_ms() - self._rebuilt_ms > 1000 * REBUILD_S:
            self._deaf = True

    async def _run(self) -> None:
        while True:
            await self._some.wait()
            try:
                if self._deaf:
                    await self._rebuild()
                await self._read()
            except RedisUnavailable as error:
                log.warning("channel_connection_lost", error=str(error))
                self._deaf = True
                await asyncio.sleep(_PAUSE_S)
            except Exception:
                # The top of the loop: without it all sessions here would wait for the stream's checks for ever.
                log.exception("subscription_failed")
                self._deaf = True
                await asyncio.sleep(_PAUSE_S)

    async def _read(self) -> None:
        if self._pubsub is None:
            await self._subscribe(sorted(self._channels))
        asked = mono_ms()
        with translated():
            message = await self._message()
        if message is None:
            if mono_ms() - asked < 1000 * _POLL_S / 2:  # redis-py does not wait when it thinks it has no channel
                await asyncio.sleep(_PAUSE_S)
            return
        channel = message["channel"].decode()
        if message["type"] in ("message", "smessage"):
            self._route(channel, message["data"])
        elif message["type"] == "sunsubscribe" and channel in self._channels:
            self._deaf = True  # its slot has moved to another server

    async def _rebuild(self) -> None:
        self._rebuilt_ms = mono_ms()
        metrics.RESUBSCRIBED.inc()
        old, self._pubsub = self._pubsub, None
        await self._subscribe(sorted(self._channels))
        self._deaf = False
        if old is not None:
            try:
                with translated():
                    await old.aclose()
            except ScribeError as error:
                log.info("old_subscription_not_closed", error=str(error))

    async def _subscribe(self, channels: list[str]) -> None:
        with translated():
            if self._clients.cluster:
                await self._clients.pubsub.initialize()
            if self._pubsub is None:
                self._pubsub = self._clients.pubsub.pubsub()
            async with self._subscribing:
                await self._call("subscribe")(*channels)

    def _call(self, what: str) -> Any:
        return getattr(self._pubsub, f"s{what}" if self._clients.keys.sharded else what)

    async def _message(self) -> Any:
        if self._clients.cluster and self._clients.keys.sharded:
            return await self._pubsub.get_sharded_message(timeout=_POLL_S)
        return await self._pubsub.get_message(timeout=_POLL_S)
