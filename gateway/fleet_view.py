"""What an operator wants to see: sessions, stages, workers, and how long clients wait. Asked for, never kept up to date.

A look costs each partition one pipeline, and one more where sessions are listed; the keyspace is never scanned. All
who watch a gateway share one look a second.
"""

import asyncio
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, islice, zip_longest
from typing import Any

from prometheus_client import Histogram
from pydantic import BaseModel, Field

from gateway.admission import Admission
from gateway.place import SAMPLE_RATE, Place
from shared import metrics
from shared.clock import mono_ms, wall_ms
from shared.keys import STAGES
from shared.protocol import SessionOptions
from shared.redis_client import GROUP, RedisClients, translated

LISTED = 200
LOOK_S = 1.0
# Workers beat several times a second; who was silent for so long is not counted on.
_LIVE_MS = 5_000


class SessionRow(BaseModel):
    session: str
    owner: str
    age_s: float
    events: int
    received_s: float = Field(description="audio the fleet has")
    backlog_s: float = Field(description="of that, not yet decoded; to a chunk")


class StageRow(BaseModel):
    stage: str
    workers: int
    waiting: int = Field(description="sessions whose work no worker has taken yet")
    in_work: int = Field(description="sessions whose work a worker has")
    oldest_s: float = Field(description="how long the work that waits longest has waited")


class WorkerRow(BaseModel):
    worker: str
    stages: list[str]
    busy: bool


class Durations(BaseModel):
    """A Prometheus histogram: how many took at most so long since the gateway started. The last bound is infinity."""

    bounds_s: list[float]
    counts: list[int] = Field(description="cumulative; one more than there are bounds")


class FleetReport(BaseModel):
    at_ms: float
    problem: str | None = Field(description="why no new sessions are taken")
    open_sessions: int
    sessions: list[SessionRow] = Field(description=f"newest first, {LISTED} at most")
    stages: list[StageRow]
    workers: list[WorkerRow]
    connected_here: int = Field(description="sessions connected to this gateway")
    latency_here: Durations = Field(description="chunk complete to its event, at this gateway")
    relay_here: Durations = Field(description="event committed to event sent, at this gateway")


class FleetView:
    """Looks when asked to."""

    def __init__(self, clients: RedisClients, admission: Admission) -> None:
        self._clients = clients
        self._admission = admission
        self._lock = asyncio.Lock()
        self._report: FleetReport | None = None
        self._looked_ms = 0.0

    async def look(self) -> FleetReport:
        """At most a second old. Raises RedisUnavailable."""
        async with self._lock:
            if self._report is None or mono_ms() - self._looked_ms > LOOK_S * 1000:
                self._report, self._looked_ms = await self._look(), mono_ms()
            return self._report

    async def _look(self) -> FleetReport:
        partitions = [await self._partition(number) for number in range(self._clients.keys.partitions)]
        beats = {stage: await self._beats(stage) for stage in STAGES}
        chosen = spread([ids for _, ids, _ in partitions], LISTED)
        rows = await self._rows(chosen)
        stages = [
            StageRow(
                stage=stage,
                workers=len(beats[stage]),
                waiting=sum(queues[at][0] for _, _, queues in partitions),
                in_work=sum(queues[at][1] for _, _, queues in partitions),
                oldest_s=self._admission.ages[stage],
            )
            for at, stage in enumerate(STAGES)
        ]
        return FleetReport(
            at_ms=wall_ms(),
            problem=self._admission.problem,
            open_sessions=sum(count for count, _, _ in partitions),
            sessions=sorted(rows, key=lambda row: row.age_s),
            stages=stages,
            workers=workers_of(beats),
            connected_here=int(next(iter(metrics.SESSIONS.collect())).samples[0].value),
            latency_here=durations(metrics.LATENCY),
            relay_here=durations(metrics.RELAY),
        )

    async def _partition(self, number: int) -> tuple[int, list[str], list[tuple[int, int]]]:
        """How many open sessions, the ids of some, and for each stage (waiting, in work)."""
        keys = self._clients.keys
        pipe = self._clients.commands.pipeline(transaction=False)
        pipe.zcount(keys.open_sessions(number), "-inf", "+inf")
        pipe.zrangebyscore(keys.open_sessions(number), "-inf", "+inf", start=0, num=LISTED)
        for stage in STAGES:
            pipe.xlen(keys.ready(number, stage))
            pipe.xinfo_groups(keys.ready(number, stage))
        with translated():
            count, ids, *queues = await pipe.execute()
        found = []
        for length, groups in zip(queues[::2], queues[1::2], strict=True):
            # Ended tokens are deleted, so a stream holds what waits and what a worker has.
            taken = next((int(g["pending"]) for g in groups if g["name"] == GROUP.encode()), 0)
            found.append((max(0, length - taken), taken))
        return count, [session.decode() for session in ids], found

    async def _rows(self, sessions: Sequence[str]) -> list[SessionRow]:
        keys, rows = self._clients.keys, []
        together: dict[int, list[str]] = defaultdict(list)
        for session in sessions:
            together[keys.partition(session)].append(session)
        for members in together.values():
            pipe = self._clients.commands.pipeline(transaction=False)
            for session in members:
                pipe.hmget(keys.meta(session), "owner", "created_ms", "events", "options")
                for stage in STAGES:
                    pipe.hmget(keys.state(session, stage), "seq", "fed", "at")
            with translated():
                told = await pipe.execute()
            size = 1 + len(STAGES)
            for at, session in enumerate(members):
                meta, *states = told[at * size : (at + 1) * size]
                if meta[1] is not None:  # else it has expired meanwhile
                    rows.append(row_of(session, meta, states, wall_ms()))
        return rows

    async def _beats(self, stage: str) -> dict[str, Any]:
        reply = await self._clients.run("peers", [self._clients.keys.workers(stage)], [_LIVE_MS])
        return {name.decode(): json.loads(beat) for name, beat in zip(reply[::2], reply[1::2], strict=True)}


def spread(lists: Iterable[Sequence[str]], most: int) -> list[str]:
    """So many of them, by turns from each list."""
    turns = chain.from_iterable(zip_longest(*lists))
    return list(islice((each for each in turns if each is not None), most))


def row_of(
    session: str, meta: Sequence[bytes | None], states: Sequence[Sequence[bytes | None]], now_ms: float
) -> SessionRow:
    """A session's row from its hashes, as `_rows` reads them."""
    owner, created_ms, events, options = meta
    done = [(int(seq or 0), int(fed or 0)) for seq, fed, _ in states]
    # A stage that has all it was fed is not behind, however far the others are: silence goes no further.
    behind = done[0][1] - min([done[0][0], *(seq for seq, fed in done[1:] if seq < fed)])
    received_s = Place.read(states[0][2] or b"").samples / SAMPLE_RATE
    chunk_s = SessionOptions.model_validate_json(options or b"{}").chunk_ms / 1000
    return SessionRow(
        session=session,
        owner=(owner or b"").decode(),
        age_s=max(0.0, now_ms - float(created_ms or 0)) / 1000,
        events=int(events or 0),
        received_s=received_s,
        backlog_s=min(behind * chunk_s, received_s),
    )


def workers_of(beats: Mapping[str, Mapping[str, Any]]) -> list[WorkerRow]:
    """Workers by name; one that serves several stages is in the heartbeats of each."""
    stages: dict[str, list[str]] = defaultdict(list)
    busy: set[str] = set()
    for stage, of_stage in beats.items():
        for worker, beat in of_stage.items():
            stages[worker].append(stage)
            busy |= {worker} if beat.get("in_flight") else set()
    return [WorkerRow(worker=name, stages=stages[name], busy=name in busy) for name in sorted(stages)]


def durations(histogram: Histogram) -> Durations:
    buckets = [s for s in next(iter(histogram.collect())).samples if s.name.endswith("_bucket")]
    bounds = [float(s.labels["le"]) for s in buckets[:-1]]
    return Durations(bounds_s=bounds, counts=[int(s.value) for s in buckets])
