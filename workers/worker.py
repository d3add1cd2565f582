"""One worker: takes a token, loads, computes in the inference thread, commits, again.

    start ──> ready ──quiet──> draining ──> stopped
At most one pass is in flight; tokens that came with it in one reply are handed back when the worker goes quiet.
"""

import asyncio
import json
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import structlog

from shared import metrics
from shared.clock import mono_ms, wall_ms
from shared.errors import RedisUnavailable, ScribeError, Stale
from shared.events import ErrorEvent
from shared.keys import STAGES
from shared.protocol import SessionOptions
from shared.redis_client import GROUP, RedisClients
from shared.settings import WorkerSettings
from workers.compute import AnyStage, Job, Loaded, Result, run_pass
from workers.lease import LeaseKeeper
from workers.pool import Hot, HotPool
from workers.tokens import Token, TokenQueue

log = structlog.get_logger()

POOL_SESSIONS = 64


class Worker:
    """Serves some stages. Embeddable: knows no signals and no environment."""

    def __init__(
        self, clients: RedisClients, settings: WorkerSettings, stages: Sequence[AnyStage], name: str
    ) -> None:
        self._clients = clients
        self._settings = settings
        self._stages = {stage.name: stage for stage in stages}
        self._name = name
        self._queue = TokenQueue(clients, list(self._stages), name)
        self._leases = LeaseKeeper(clients.settings, list(self._stages), name, settings.lease_s)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="inference")
        self._pool = HotPool(POOL_SESSIONS * len(self._stages))
        self._options: dict[str, SessionOptions] = {}
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
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def done(self) -> None:
        """Until the worker has drained."""
        assert self._task
        await self._task

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
        if not self._waiting:
            token = await self._queue.take()
            self._accept([token] if token else await self._queue.wait())
        return self._waiting.popleft() if self._waiting and not self._quiet else None

    def _accept(self, tokens: Sequence[Token]) -> None:
        for token in tokens:
            self._leases.hold(token)
            self._waiting.append(token)

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

    async def _pass(self, token: Token) -> None:
        try:
            job = await self._load(token)
            if job is None:
                await self._queue.settle(token)
                return
            loop = asyncio.get_running_loop()
            result = await loop.run_in_executor(self._thread, run_pass, job, mono_ms, wall_ms)
            if result is None:
                await self._queue.settle(token)
                return
            await self._commit(token, result)
            self._observe(job, result)
        finally:
            self._leases.drop(token)

    async def _load(self, token: Token) -> Job | None:
        """Read what the pass needs; None when the token is not the session's current one."""
        began, wait = mono_ms(), wall_ms() - token.created_ms
        chain = [self._stages[s] for s in STAGES[STAGES.index(token.stage) :] if s in self._stages]
        chain = chain[: _adjacent([stage.name for stage in chain])]
        hot = [self._pool.get(token.session, stage.name) for stage in chain]
        keys = self._clients.keys
        reply = await self._clients.run(
            "load",
            [
                key
                for s in chain
                for key in (keys.state(token.session, s.name), keys.inputs(token.session, s.name))
            ],
            [token.id, *(h.version if h else "" for h in hot)],
        )
        options = await self._session_options(token.session)
        if reply is None or options is None:
            return None
        loaded = [_loaded(part, h) for part, h in zip(reply, hot, strict=True)]
        for stage in loaded:
            metrics.POOL.labels("hit" if stage.hot else "miss").inc()
        return Job(token.session, options, chain, loaded, wait, mono_ms() - began, self._name)

    async def _session_options(self, session: str) -> SessionOptions | None:
        if session not in self._options:
            raw = await self._clients.meta_field(session, "options")
            if raw is None:
                return None
            if len(self._options) >= POOL_SESSIONS:
                self._options.clear()
            self._options[session] = SessionOptions.model_validate_json(raw)
        return self._options[session]

    async def _commit(self, token: Token, result: Result) -> None:
        keys, session = self._clients.keys, token.session
        links = result.links
        names = [token.ready, keys.meta(session), keys.events(session)]
        for link in links:
            names += [keys.state(session, link.stage), keys.inputs(session, link.stage)]
        if links[-1].output:
            onward = STAGES[STAGES.index(links[-1].stage) + 1]
            names += [
                keys.state(session, onward),
                keys.inputs(session, onward),
                keys.ready_of(session, onward),
            ]
        args: list[Any] = [token.id, GROUP, session, self._clients.ttl_ms, wall_ms(), keys.channel(session)]
        args += ["ended" if result.ended else "", len(links)]
        for link in links:
            args += [link.old_seq, link.new_seq, link.keep, link.blob, link.output, int(link.store)]
        began = mono_ms()
        try:
            await self._clients.run("commit", names, [*args, *result.events])
        except Stale as stale:
            for link in links:
                self._pool.forget(session, link.stage)
            metrics.COMMITS.labels("stale").inc()
            log.info("stale_commit_dropped", session=session, stage=token.stage, why=str(stale))
            return
        metrics.COMMITS.labels("ok").inc()
        metrics.COMMIT.observe((mono_ms() - began) / 1000)
        for link in links:
            self._pool.put(session, link.stage, Hot(token.id, link.hot.state, link.hot.inputs))

    def _observe(self, job: Job, result: Result) -> None:
        metrics.QUEUE.labels(job.stages[0].name).observe(max(job.wait_ms, 0) / 1000)
        metrics.LOAD.observe(job.load_ms / 1000)
        for link in result.links:
            metrics.INPUTS.labels(link.stage).inc(link.new_seq - link.old_seq)
        for stage in result.reset:
            log.warning("state_reset", session=job.session, stage=stage, why="written by another version")


def _adjacent(names: Sequence[str]) -> int:
    """How many of these stages, from the first, follow each other without a hole."""
    first = STAGES.index(names[0])
    return next((i for i, name in enumerate(names) if STAGES.index(name) != first + i), len(names))


def _loaded(part: Sequence[Any], hot: Hot | None) -> Loaded:
    seq, fed, version, token, blob, entries = part
    current = hot if hot and version and hot.version == version.decode() else None
    pairs = [(int(i.split(b"-")[0]), dict(zip(f[::2], f[1::2], strict=True))) for i, f in entries]
    return Loaded(seq, fed, version.decode(), token.decode(), blob, pairs, current)
