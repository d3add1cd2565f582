"""One worker: takes a token, runs its pass, takes the next.

    start ──> serving ──quiet──> draining ──stop──> stopped

One pass is in flight at a time. Tokens that came with it in one reply wait here, their leases renewed, and are
handed back to the fleet when the worker goes quiet.
"""

import asyncio
import json
from collections import deque
from collections.abc import Sequence

import structlog

from shared import metrics
from shared.clock import mono_ms
from shared.errors import RedisUnavailable, ScribeError
from shared.events import ErrorEvent
from shared.redis_client import RedisClients
from shared.settings import WorkerSettings
from workers.compute import AnyStage
from workers.lease import LeaseKeeper
from workers.runner import Runner
from workers.tokens import Token, TokenQueue

log = structlog.get_logger()


class Worker:
    """Serves some stages. Embeddable: knows no signals and no environment."""

    def __init__(
        self, clients: RedisClients, settings: WorkerSettings, stages: Sequence[AnyStage], name: str
    ) -> None:
        names = [stage.name for stage in stages]
        self._clients = clients
        self._settings = settings
        self._name = name
        self._queue = TokenQueue(clients, names, name)
        self._leases = LeaseKeeper(clients.settings, names, name, settings.lease_s)
        self._runner = Runner(clients, stages, name)
        self._waiting: deque[Token] = deque()
        self._quiet = False
        self._sweep_at = 0.0
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Take work from now on, and be seen to."""
        self._leases.start()
        self._task = asyncio.create_task(self._run(), name=f"worker {self._name}")

    def quiet(self) -> None:
        """Take no more; the pass in flight goes on."""
        self._quiet = True
        self._leases.quiet()

    async def stop(self, deadline_s: float) -> None:
        """Finish the pass in flight and hand the rest back, within the deadline."""
        self.quiet()
        if self._task:
            _, late = await asyncio.wait([self._task], timeout=deadline_s)
            for task in late:  # its token comes back to the fleet when the lease runs out
                task.cancel()
        await asyncio.to_thread(self._leases.stop)
        self._runner.stop()

    async def work(self) -> bool:
        """Do one piece of work if there is any, without waiting for it. For embedding and for tests."""
        token = await self._queue.take()
        if token:
            await self._pass(token)
        return token is not None

    async def _run(self) -> None:
        while not self._quiet:
            try:
                token = await self._next()
                if token:
                    await self._pass(token)
            except RedisUnavailable as error:
                log.warning("redis_unavailable", error=str(error))
                await asyncio.sleep(0.2)
                await self._recover()
            except Exception:
                # The top of the loop: a bug in one pass must not end the worker. The token stays pending and
                # comes back to some worker when its lease runs out, a limited number of times.
                log.exception("pass_failed")
        for token in self._waiting:
            await self._queue.settle(token)
            self._leases.drop(token)

    async def _next(self) -> Token | None:
        if mono_ms() >= self._sweep_at:
            self._sweep_at = mono_ms() + self._settings.lease_s * 500
            await self._reclaim()
            await self._queue.divide(silent_ms=self._settings.lease_s * 1000)
        if not self._waiting:
            token = await self._queue.take()
            self._accept([token] if token else await self._queue.wait())
        return self._waiting.popleft() if self._waiting and not self._quiet else None

    def _accept(self, tokens: Sequence[Token]) -> None:
        for token in tokens:
            self._leases.hold(token)
            self._waiting.append(token)

    async def _pass(self, token: Token) -> None:
        try:
            if not await self._runner.run(token):
                await self._queue.settle(token)
        finally:
            self._leases.drop(token)

    async def _recover(self) -> None:
        """After a failed read: groups may be gone, and tokens may be ours in a reply we never saw."""
        try:
            await self._clients.start()
            held = {token.id for token in self._waiting}
            self._accept([token for token in await self._queue.mine() if token.id not in held])
        except ScribeError as error:
            log.warning("not_recovered_yet", error=str(error))

    async def _reclaim(self) -> None:
        for token, deliveries in await self._queue.reclaim(int(self._settings.lease_s * 1000)):
            metrics.RECLAIMED.labels(token.stage).inc()
            if deliveries > self._settings.deliveries:
                await self._bury(token, deliveries - 1)
            else:
                self._accept([token])

    async def _bury(self, token: Token, deliveries: int) -> None:
        """Poison: tell the session, then set the token aside. In this order both steps can be repeated."""
        message = f"the {token.stage} stage failed {deliveries} times on this audio; open a new session"
        event = ErrorEvent(session=token.session, code="stage_failed", message=message)
        body = event.model_dump(exclude={"event"}, exclude_none=True)
        keys = self._clients.keys
        await self._clients.run(
            "emit",
            [keys.meta(token.session), keys.events(token.session)],
            [keys.channel(token.session), self._clients.ttl_ms, "failed", json.dumps(body)],
        )
        await self._queue.settle(token, message)
        metrics.DEAD.labels(token.stage).inc()
        log.error("dead_letter", session=token.session, stage=token.stage, deliveries=deliveries)
