"""The sessions that wait for nobody: those whose client was cut off and did not come back in time are ended.

A session's deadline is in Redis, in its partition's set of open sessions, and each gateway renews it for the sessions
that it serves. So any gateway can end those of one that was killed, and none ends those of another that lives.
"""

import asyncio
from collections import defaultdict

import structlog

from gateway.ingest import Ingest
from gateway.sessions import Held, claim
from shared.clock import wall_ms
from shared.errors import ScribeError, SessionOver
from shared.redis_client import RedisClients
from shared.settings import GatewaySettings
from shared.tasks import cancel

log = structlog.get_logger()

# How often, at least, deadlines are renewed, and overdue sessions looked for.
TICK_S = 1.0
# Within the wait; one that was late, or failed, must not end a session that another gateway serves.
_TICKS_A_WAIT = 4


class Registry:
    """start ──> keeping ──stop──> stopped"""

    def __init__(self, clients: RedisClients, settings: GatewaySettings) -> None:
        self._clients = clients
        self._wait_s = settings.resume_s
        self._held: dict[str, Held] = {}
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="registry")

    async def stop(self) -> None:
        await cancel([self._task])

    def add(self, held: Held) -> None:
        self._held[held.session] = held

    def remove(self, held: Held) -> None:
        """From now on its deadline counts. A newer connection here may have taken the session over."""
        if self._held.get(held.session) is held:
            del self._held[held.session]

    async def _run(self) -> None:
        while True:
            try:
                await self.tick()
            except ScribeError as error:
                log.warning("sessions_not_renewed", error=str(error))
            except Exception:
                # The top of the loop: without it no session would ever be renewed or ended again.
                log.exception("registry_failed")
            await asyncio.sleep(min(TICK_S, self._wait_s / _TICKS_A_WAIT))

    async def tick(self) -> None:
        """Renew what is served here, and end what nobody renews."""
        mine: dict[int, list[str]] = defaultdict(list)
        for session in self._held:
            mine[self._clients.keys.partition(session)].append(session)
        partitions = range(self._clients.keys.partitions)
        overdue = await asyncio.gather(*(self._renew(p, mine[p]) for p in partitions))
        for session in (name.decode() for names in overdue for name in names):
            await self._end(session)

    async def _renew(self, partition: int, sessions: list[str]) -> list[bytes]:
        keys = self._clients.keys
        args = [self._clients.ttl_ms, int(self._wait_s * 1000), *sessions]
        overdue: list[bytes] = await self._clients.run("keepalive", [keys.open_sessions(partition)], args)
        return overdue

    async def _end(self, session: str) -> None:
        held = await claim(self._clients, session, self._wait_s)
        if held is None or held.over:
            return
        try:
            await Ingest(self._clients, held).append("end", b"", wall_ms())
        except SessionOver:  # its client came back just now
            return
        log.info("abandoned_session_ended", session=session)
