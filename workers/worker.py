"""One worker: takes a token, runs its pass, takes the next.

    start ──> serving ──quiet──> draining ──stop──> stopped

One token is in hand at a time, and its lease is renewed. It leaves the hand committed, handed back or buried. What only
Redis was to blame for is tried again with the same token, for as long as it takes.
"""

import asyncio
import json
from collections.abc import Sequence

import structlog

from shared import heap, metrics
from shared.clock import mono_ms
from shared.errors import Misconfigured, Overloaded, RedisUnavailable, ScribeError
from shared.events import ErrorEvent
from shared.redis_client import RedisClients
from shared.settings import WorkerSettings
from shared.tasks import cancel
from workers.compute import AnyStage
from workers.lease import LeaseKeeper
from workers.peers import Peers
from workers.runner import Runner
from workers.shards import token_queue
from workers.tokens import Token

log = structlog.get_logger()

# Away, out of memory, or with other passwords than ours: no fault of a pass.
OUTAGE = (RedisUnavailable, Overloaded, Misconfigured)
PAUSES_S = (0.05, 0.1, 0.2, 0.5, 1.0)
# So that a peer, whose engine may be in better health, is the one to repeat a pass that failed here.
FAILED_PAUSE_S = 0.2
FORGET_MS = 60_000
TRIM_MS = 20_000
# For handing back what the deadline of `stop` cut short.
LAST_WORDS_S = 2.0


class Worker:
    """Serves some stages. Embeddable: knows no signals and no environment."""

    def __init__(
        self, clients: RedisClients, settings: WorkerSettings, stages: Sequence[AnyStage], name: str
    ) -> None:
        schemas = {stage.name: stage.schema for stage in stages}
        self._clients = clients
        self._settings = settings
        self._name = name
        self._lease_ms = int(settings.lease_s * 1000)
        self._peers = Peers(clients, name, self._lease_ms)
        self._queue = token_queue(clients, list(schemas), name)
        self._leases = LeaseKeeper(clients.settings, schemas, name, settings.lease_s)
        self._runner = Runner(clients, stages, name, self._queue, self._peers)
        self._token: Token | None = None  # in hand
        self._quiet = False
        self._troubles = 0  # rounds in a row that Redis did not let us finish
        self._sweep_at = 0.0
        self._forget_at = mono_ms() + FORGET_MS
        self._trim_at = mono_ms() + TRIM_MS
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
        """Finish the pass in flight within the deadline, or hand its token back: the fence refuses it from then on."""
        self.quiet()
        if self._task:
            _, late = await asyncio.wait([self._task], timeout=deadline_s)
            await cancel(late)
        await self._queue.stop()
        try:
            async with asyncio.timeout(LAST_WORDS_S):
                if self._token:
                    await self._queue.hand_back(self._token)
                await self._queue.forget(FORGET_MS, leaving=True)
        except (*OUTAGE, TimeoutError) as error:
            log.warning("left_without_goodbye", error=str(error))  # the lease brings the token back to a peer
        await asyncio.to_thread(self._leases.stop)
        self._runner.stop()

    async def work(self) -> bool:
        """Do one piece of work if there is any, without waiting for it. For embedding and for tests."""
        self._hold(await self._queue.take())
        if not self._token:
            return False
        await self._pass(self._token)
        return True

    async def _run(self) -> None:
        while not self._quiet or self._token:
            try:
                await self._round()
                self._troubles = 0
            except OUTAGE as error:
                await self._sit_out(error)
            except Exception:
                # The top of the loop: a bug outside of a pass must not end the worker, nor fill the log.
                log.exception("round_failed")
                await asyncio.sleep(FAILED_PAUSE_S)

    async def _round(self) -> None:
        if not self._token:
            await self._sweep()
            self._hold(await self._next())
        if self._token:
            await self._pass(self._token)

    async def _next(self) -> Token | None:
        if token := await self._queue.take():
            return token
        tokens = await self._queue.wait(self._sweep_at - mono_ms())
        for token in tokens[1:]:  # a peer may be free, and one that dies takes only its own pass along
            await self._queue.hand_back(token)
        return tokens[0] if tokens else None

    def _hold(self, token: Token | None) -> None:
        self._token = token
        self._leases.hold(token)

    async def _pass(self, token: Token) -> None:
        try:
            if token.failures < self._settings.deliveries:
                await self._runner.run(token)
            else:
                await self._bury(token)
        except OUTAGE:
            raise  # still in hand: the next round tries again
        except Exception:
            # The top of a pass: a bug in it, or audio that it can't take, must cost no other session anything.
            log.exception("pass_failed", session=token.session, stage=token.stage)
            self._runner.forget(token)
            await self._queue.hand_back(token, failures=token.failures + 1)
            await asyncio.sleep(FAILED_PAUSE_S)
        self._hold(None)

    async def _sit_out(self, error: ScribeError) -> None:
        """Redis is away: wait a moment. Once it is back groups may be gone, and tokens ours in replies that never came."""
        log.warning("redis_unavailable", error=str(error), holding=self._token is not None)
        await asyncio.sleep(PAUSES_S[min(self._troubles, len(PAUSES_S) - 1)])
        self._troubles += 1
        # Each by itself: without memory the groups can't be made again, but they may be there.
        for work in (self._clients.start, self._hand_back_unseen):
            try:
                await work()
            except ScribeError as still:
                log.info("not_recovered_yet", error=str(still))
        self._peers.unheard()

    async def _hand_back_unseen(self) -> None:
        for token in await self._queue.mine():
            if not self._token or token.id != self._token.id:
                await self._queue.hand_back(token)

    async def _sweep(self) -> None:
        """Now and then: who does what, and what the dead have left behind."""
        if mono_ms() < self._sweep_at:
            return
        self._sweep_at = mono_ms() + self._lease_ms / 4  # so that a lease and the look for it take 2.5 s
        if self._peers.judged:
            await self._take_over()
            await self._queue.divide(self._peers)
        if mono_ms() >= self._forget_at:
            self._forget_at = mono_ms() + FORGET_MS
            await self._queue.forget(FORGET_MS)
        if mono_ms() >= self._trim_at:
            self._trim_at = mono_ms() + TRIM_MS
            await asyncio.to_thread(heap.trim)

    async def _take_over(self) -> None:
        for token, begun in await self._queue.silent(self._lease_ms):
            metrics.RECLAIMED.labels(token.stage).inc()
            failures = token.failures + int(begun)
            await self._queue.hand_back(token, failures=failures, idle_ms=self._lease_ms)

    async def _bury(self, token: Token) -> None:
        """Poison: tell the session, then set the token aside. In this order both steps can be repeated."""
        message = f"the {token.stage} stage failed {token.failures} times on this audio; open a new session"
        event = ErrorEvent(session=token.session, code="stage_failed", message=message)
        body = event.model_dump(exclude={"event"}, exclude_none=True)
        keys = self._clients.keys
        await self._clients.run(
            "emit",
            [keys.meta(token.session), keys.events(token.session)],
            [keys.channel(token.session), self._clients.ttl_ms, "failed", json.dumps(body)],
        )
        await self._queue.bury(token, message)
        metrics.DEAD.labels(token.stage).inc()
        log.error("dead_letter", session=token.session, stage=token.stage, failures=token.failures)
