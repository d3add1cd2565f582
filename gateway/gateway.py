"""The gateway's long-lived part: the transcript hub and the connections in service."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator

import structlog
from starlette.websockets import WebSocket

from gateway import refusal
from gateway.connection import Connection
from gateway.door import Door
from shared import metrics
from shared.access import Principal
from shared.errors import ScribeError
from shared.redis_client import RedisClients, translated
from shared.settings import AuthSettings, GatewaySettings, LimitSettings
from shared.transcripts import Numbered, TranscriptHub

log = structlog.get_logger()


class Gateway:
    """start ──> serving ──quiet──> draining ──> stopped"""

    def __init__(
        self,
        clients: RedisClients,
        settings: GatewaySettings,
        auth: AuthSettings | None = None,
        limits: LimitSettings | None = None,
    ) -> None:
        limits = limits or LimitSettings()
        self._clients = clients
        self._settings = settings
        self.door = Door(clients, auth or AuthSettings(), limits, settings.host)
        self._hub = TranscriptHub(clients)
        self._connections: set[asyncio.Task[None]] = set()
        self._draining = False

    async def start(self) -> None:
        await self.door.start()
        await self._hub.start()

    def quiet(self) -> None:
        """Take no new sessions; readiness says so."""
        self._draining = True

    async def stop(self, deadline_s: float) -> None:
        """Let sessions finish until the deadline, then close them."""
        self.quiet()
        if self._connections:
            _, late = await asyncio.wait(self._connections, timeout=deadline_s)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        await self._hub.stop()
        await self.door.stop()

    async def serve(self, socket: WebSocket) -> None:
        """Serve one client until its session is over, or refuse it."""
        try:
            principal = self._let_in(socket)
        except ScribeError as error:
            await refusal.refuse(socket, error)
            return
        task = asyncio.current_task()
        assert task
        self._connections.add(task)
        metrics.SESSIONS.inc()
        try:
            await Connection(socket, self._clients, self._hub, self._settings, principal).serve()
        finally:
            metrics.SESSIONS.dec()
            self._connections.discard(task)

    def _let_in(self, socket: WebSocket) -> Principal:
        if self._draining:
            raise refusal.draining()
        return self.door.enter(socket, "transcribe")

    async def problem(self) -> str | None:
        """Why no new sessions are taken; None when they are."""
        if self._draining:
            return "draining"
        try:
            with translated():
                await self._clients.commands.set(self._clients.keys.probe(), b"1", px=5000)
        except ScribeError as error:
            log.warning("not_ready", why=str(error))
            return "Redis does not take writes"
        return None

    async def shows(self, session: str, principal: Principal) -> bool:
        """Whether there is such a session for this principal; somebody else's does not exist for it."""
        owner = await self._clients.meta_field(session, "owner")
        return owner is not None and principal.may_read(owner.decode())

    async def events(self, session: str, after: int) -> AsyncIterator[Numbered]:
        """A session's events after that number, up to its last one."""
        follower = await self._hub.follow(session, after)
        with contextlib.suppress(asyncio.CancelledError):
            async for event in follower:
                yield event
                if json.loads(event.raw)["type"] in ("end", "error"):
                    break
        await follower.close()
