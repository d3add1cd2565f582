"""The gateway's long-lived part: the transcript hub and the connections in service."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Iterator

import structlog
from starlette.requests import HTTPConnection
from starlette.websockets import WebSocket

from gateway import refusal
from gateway.admission import Admission
from gateway.call import Call
from gateway.connection import Connection
from gateway.container_stream import ContainerDecoders
from gateway.dialects.base import Dialect
from gateway.door import Door
from gateway.fleet_view import FleetView
from gateway.registry import Registry
from gateway.sessions import new_session_id
from gateway.visit import Visit
from shared import metrics
from shared.access import Principal
from shared.errors import BadInput, ScribeError
from shared.redis_client import RedisClients, translated
from shared.settings import AuthSettings, GatewaySettings, LimitSettings
from shared.tasks import cancel
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
        self.door = Door(clients, auth or AuthSettings(), limits, settings.host)
        self.admission = Admission(clients, limits)
        self.fleet = FleetView(clients, self.admission)
        self._clients = clients
        self._settings = settings
        self._hub = TranscriptHub(clients)
        self._registry = Registry(clients, settings)
        self._decoders = ContainerDecoders(settings.containers)
        self._connections: set[asyncio.Task[None]] = set()
        self._viewers: set[asyncio.Task[None]] = set()
        self._draining = False

    async def start(self) -> None:
        await self.door.start()
        await self.admission.start()
        await self._hub.start()
        await self._registry.start()
        await self._decoders.start()

    def quiet(self) -> None:
        """Take no new sessions; readiness says so."""
        self._draining = True
        self._decoders.quiet()

    async def stop(self, deadline_s: float) -> None:
        """Let sessions finish until the deadline, then close them."""
        self.quiet()
        if self._connections:
            _, late = await asyncio.wait(self._connections, timeout=deadline_s)
            await cancel(late)
        await cancel(self._viewers)
        await self._decoders.stop(deadline_s)
        await self._registry.stop()
        await self._hub.stop()
        await self.admission.stop()
        await self.door.stop()

    async def serve(self, socket: WebSocket, dialect: type[Dialect]) -> None:
        """Serve one client until its session is over, or refuse it."""
        with self.counted():
            try:
                resumed = (
                    socket.query_params.get("session") if "resume_token" in socket.query_params else None
                )
                visit = await self.let_in(socket, dialect, resumed)
                try:
                    speaks = dialect(socket)
                except BadInput:
                    await visit.stop(comes_back=False)
                    raise
            except ScribeError as error:
                await refusal.refuse(socket, error, dialect)
                return
            connection = Connection(socket, speaks, self.call(visit), settings=self._settings, visit=visit)
            try:
                await connection.serve()
            finally:
                await visit.stop(comes_back=connection.comes_back)

    @contextlib.contextmanager
    def counted(self) -> Iterator[None]:
        """The current task is among those that a stop waits for."""
        task = asyncio.current_task()
        assert task
        self._connections.add(task)
        metrics.SESSIONS.inc()
        try:
            yield
        finally:
            metrics.SESSIONS.dec()
            self._connections.discard(task)

    @contextlib.contextmanager
    def viewed(self) -> Iterator[None]:
        """The current task shows a session to a viewer, which does not keep the gateway from stopping."""
        task = asyncio.current_task()
        assert task
        self._viewers.add(task)
        metrics.VIEWERS.inc()
        try:
            yield
        finally:
            metrics.VIEWERS.dec()
            self._viewers.discard(task)

    async def let_in(
        self, client: HTTPConnection, dialect: type[Dialect], resumed: str | None = None
    ) -> Visit:
        """Raises ScribeError for a client that is refused. One that resumes a session is not new to the fleet."""
        if self._draining:
            raise refusal.draining()
        principal = self.door.enter(
            client, "transcribe", in_query=dialect.secret_in_query, secret=dialect.secret(client)
        )
        if resumed is None:
            self.admission.check(len(self._connections) - 1)
        visit = Visit(self._clients, principal, resumed or new_session_id())
        await visit.start()
        return visit

    def call(self, visit: Visit) -> Call:
        return Call(
            self._clients, self._hub, self._registry, self._decoders, settings=self._settings, visit=visit
        )

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
        return self.admission.problem

    async def shows(self, session: str, principal: Principal) -> bool:
        """Whether there is such a session for this principal; somebody else's does not exist for it."""
        owner = await self._clients.meta_field(session, "owner")
        return owner is not None and principal.may_read(owner.decode())

    async def newest(self, session: str) -> tuple[int, bool]:
        """Number of a session's newest event, and whether it is the last one."""
        over = await self._clients.meta_field(session, "status") != b"open"  # first: then the number stays
        return int(await self._clients.meta_field(session, "events") or 0), over

    async def events(self, session: str, after: int) -> AsyncGenerator[Numbered, None]:
        """A session's events after that number, up to its last one."""
        follower = await self._hub.follow(session, after)
        try:
            async for event in follower:
                yield event
                if event.fields["type"] in ("end", "error"):
                    return
        finally:
            await follower.close()
