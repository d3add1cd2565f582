"""One pass for one token: load, compute in the inference thread, commit or end the token otherwise."""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import structlog

from shared import metrics
from shared.clock import mono_ms, wall_ms
from shared.errors import Stale
from shared.keys import STAGES
from shared.protocol import SessionOptions
from shared.redis_client import GROUP, RedisClients
from workers.compute import AnyStage, Job, Loaded, Result, run_pass
from workers.overload import Overload
from workers.peers import Peers
from workers.pool import Hot, HotPool
from workers.stages.codec import schema_of
from workers.tokens import Token, TokenQueue

log = structlog.get_logger()

POOL_SESSIONS = 64
# After handing back a state that a peer can read, so that the peer is the one to take it.
FOREIGN_PAUSE_S = 0.02


class Runner:
    """Owns the inference thread and the soft caches."""

    def __init__(
        self, clients: RedisClients, stages: Sequence[AnyStage], name: str, queue: TokenQueue, peers: Peers
    ) -> None:
        self._clients = clients
        self._stages = {stage.name: stage for stage in stages}
        self._name = name
        self._queue = queue
        self._peers = peers
        self._overload = Overload()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="inference")
        self._pool = HotPool(POOL_SESSIONS * len(self._stages))
        self._options: dict[str, SessionOptions] = {}

    async def run(self, token: Token) -> None:
        """Run one pass and end the token. May be repeated after an error: what was committed is not again."""
        job = await self._load(token)
        if job is None:
            return
        loop = asyncio.get_running_loop()
        result = await loop.run_in_executor(self._thread, run_pass, job, mono_ms, wall_ms)
        if result is None:
            await self._queue.idle(token, job.loaded[0].fed)
            return
        try:
            await self._commit(token, result)
        except Stale as stale:
            self.forget(token)
            metrics.COMMITS.labels("stale").inc()
            log.info("stale_commit_dropped", session=token.session, stage=token.stage, why=str(stale))
            await self._queue.hand_back(token)  # in vain when a peer has it; else a fused stage was not free
            return
        _observe(job, result)

    def forget(self, token: Token) -> None:
        """Read everything anew next time."""
        for stage in self._chain(token.stage):
            self._pool.forget(token.session, stage.name)

    def stop(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _chain(self, stage: str) -> list[AnyStage]:
        """The taken stage and those right behind it that this worker serves too."""
        chain: list[AnyStage] = []
        for name in STAGES[STAGES.index(stage) :]:
            if name not in self._stages:
                break
            chain.append(self._stages[name])
        return chain

    async def _load(self, token: Token) -> Job | None:
        """The pass to run; None when there is none, and the token has been ended."""
        began = mono_ms()
        chain = self._chain(token.stage)
        hot = [self._pool.get(token.session, stage.name) for stage in chain]
        keys, names = self._clients.keys, [token.ready]
        for stage in chain:
            names += [keys.state(token.session, stage.name), keys.inputs(token.session, stage.name)]
        args = [token.id, GROUP, self._name, *(h.version if h else "" for h in hot)]
        reply = await self._clients.run("load", names, args)
        if reply is None:  # a peer's by now
            await self._queue.hand_back(token)
            return None
        loaded = [_loaded(part, h) for part, h in zip(reply, hot, strict=True)]
        options = await self._session_options(token.session)
        if options is None:  # the session is gone
            await self._queue.idle(token, loaded[0].fed)
            return None
        readable = await self._readable(chain, loaded)
        if not readable:
            await self._queue.hand_back(token)
            await asyncio.sleep(FOREIGN_PAUSE_S)
            return None
        haste = self._overload.taken(token.waited_ms, mono_ms())
        took = mono_ms() - began
        return Job(token.session, options, readable, loaded, token.waited_ms, took, self._name, haste)

    async def _readable(self, chain: list[AnyStage], loaded: Sequence[Loaded]) -> list[AnyStage]:
        """The stages up to the first whose state a peer can read and we can't (workers/peers.py)."""
        for index, (stage, part) in enumerate(zip(chain, loaded, strict=True)):
            if part.hot or not part.blob or (schema := schema_of(part.blob)) == stage.schema:
                continue
            if await self._peers.can_read(stage.name, schema):
                return chain[:index]
        return chain

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
        keys, session, links = self._clients.keys, token.session, result.links
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
        args += [
            "ended" if result.ended else "",
            len(links),
            "".join(str(event.lasts) for event in result.events),
        ]
        for link in links:
            args += [link.old_seq, link.new_seq, link.keep, link.blob, link.output, int(link.store)]
        began = mono_ms()
        await self._clients.run("commit", names, [*args, *(event.body for event in result.events)])
        metrics.COMMITS.labels("ok").inc()
        metrics.COMMIT.observe((mono_ms() - began) / 1000)
        for link in links:
            self._pool.put(
                session, link.stage, Hot(f"{token.id}:{link.new_seq}", link.hot.state, link.hot.inputs)
            )


def _loaded(part: Sequence[Any], hot: Hot | None) -> Loaded:
    seq, fed, version, token, blob, entries = part
    current = hot if hot and hot.version == version.decode() else None
    metrics.POOL.labels("hit" if current else "miss").inc()
    pairs = [(int(i.split(b"-")[0]), dict(zip(f[::2], f[1::2], strict=True))) for i, f in entries]
    return Loaded(seq, fed, token.decode(), blob, pairs, current)


def _observe(job: Job, result: Result) -> None:
    metrics.QUEUE.labels(job.stages[0].name).observe(max(job.wait_ms, 0) / 1000)
    metrics.LOAD.observe(job.load_ms / 1000)
    for link in result.links:
        metrics.STEP.labels(link.stage).observe(link.step_ms / 1000)
        metrics.INPUTS.labels(link.stage).inc(link.new_seq - link.old_seq)
    for stage in result.reset:
        log.warning("state_reset", session=job.session, stage=stage, why="written by another version")
