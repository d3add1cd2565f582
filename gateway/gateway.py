"""The gateway's long-lived part: the transcript hub and the connections in service."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator

import structlog
from starlette.websockets import WebSocket

from gateway.connection import CLOSE_TRY_LATER, Connection
from gateway.registry import Registry
from shared import metrics
from shared.errors import ScribeError
from shared.redis_client import RedisClients, translated
from shared.settings import GatewaySettings
from shared.tasks import cancel
from shared.transcripts import Numbered, TranscriptHub

log = structlog.get_logger()


class Gateway:
    """start ──> serving ──quiet──> draining ──> stopped"""

    def __init__(self, clients: RedisClients, settings: GatewaySettings) -> None:
        self._clients = clients
        self._settings = settings
        self._hub = TranscriptHub(clients)
        self._registry = Registry(clients, settings)
        self._connections: set[asyncio.Task[None]] = set()
        self._draining = False

    async def start(self) -> None:
        await self._hub.start()
        await self._registry.start()

    def quiet(self) -> None:
        """Take no new sessions; readiness says so."""
        self._draining = True

    async def stop(self, deadline_s: float) -> None:
        """Let sessions finish until the deadline, then close them."""
        self.quiet()
        if self._connections:
            _, late = await asyncio.wait(self._connections, timeout=deadline_s)
            await cancel(late)
        await self._registry.stop()
        await self._hub.stop()

    async def serve(self, socket: WebSocket) -> None:
        """Serve one client until its session is over."""
        if self._draining:
            await socket.accept()
            await socket.close(CLOSE_TRY_LATER, "this gateway is shutting down; connect again")
            return
        task = asyncio.current_task()
        assert task
        self._connections.add(task)
        metrics.SESSIONS.inc()
        try:
            await Connection(socket, self._clients, self._hub, self._registry, self._settings).serve()
        finally:
            metrics.SESSIONS.dec()
            self._connections.discard(task)

    async def problem(self) -> str | None:
        """Why no new sessions are taken; None when they are."""
        if self._draining:
            return "draining"
        try:
            with translated():
                await self._clients.commands.set(self._clients.keys.probe(), b"1", px=5000)
        except ScribeError as error:
            return str(error)
        return None

    async def knows(self, session: str) -> bool:
        return await self._clients.meta_field(session, "status") is not None

    async def events(self, session: str, after: int) -> AsyncIterator[Numbered]:
        """A session's events after that number, up to its last one."""
        follower = await self._hub.follow(session, after)
        with contextlib.suppress(asyncio.CancelledError):
            async for event in follower:
                yield event
                if json.loads(event.raw)["type"] in ("end", "error"):
                    break
        await follower.close()
