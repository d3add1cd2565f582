"""Asks the Sentinels who the master is, so that a planned failover is noticed.

The old master of one stays connected and, without min-replicas-to-write, goes on taking writes that are lost when it is
made a replica, some ten seconds later (research/redis-pitfalls.md, fact 1).
"""

import asyncio
from collections.abc import Sequence
from typing import Any

import redis
import structlog
from redis.asyncio.sentinel import Sentinel

from shared import metrics
from shared.tasks import cancel

log = structlog.get_logger()

POLL_S = 0.25


class MasterWatch:
    """start ──> watching ──stop──> stopped. When the master has moved, the clients' connections are closed."""

    def __init__(self, sentinel: Sentinel, service: str, clients: Sequence[Any]) -> None:
        self._sentinel = sentinel
        self._service = service
        self._clients = clients
        self._known: tuple[str, int] | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Again is no harm."""
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="sentinel watch")

    async def stop(self) -> None:
        await cancel([self._task])
        await self._sentinel.aclose()

    async def _run(self) -> None:
        while True:
            try:
                await self._look()
            except redis.RedisError as error:
                # No Sentinel answers, or they name no master just now: those who need one find that out themselves.
                log.info("master_unknown", error=str(error))
            except Exception:
                # The top of the loop: without it the next failover would cost ten seconds of audio.
                log.exception("sentinel_watch_failed")
            await asyncio.sleep(POLL_S)

    async def _look(self) -> None:
        address = await self._sentinel.discover_master(self._service)
        if self._known not in (None, address):
            log.warning("redis_master_moved", to=f"{address[0]}:{address[1]}")
            metrics.MASTER_MOVED.inc()
            for client in self._clients:
                await client.connection_pool.disconnect()
        self._known = address
