"""Workers on a real Redis: whoever does the work, and whoever dies doing it, the transcript is the same."""

import asyncio
import json

import numpy as np
import pytest

from gateway.ingest import Ingest
from gateway.sessions import Held, open_session
from shared.clock import wall_ms
from shared.errors import Stale
from shared.protocol import SessionOptions
from shared.redis_client import GROUP, RedisClients
from shared.settings import WorkerSettings
from tests.conftest import wait_until
from tests.fakes import LoudnessDetector, NumberVocabulary, PitchEngine
from tests.pipeline import Pipeline, audio_chunks, lasting
from tests.unit.test_stages import silence, speech
from workers import shards
from workers.compute import run_pass
from workers.stages.acoustic import Acoustic
from workers.stages.decoder import Decoder
from workers.stages.frontend import Frontend
from workers.tokens import owner
from workers.worker import Worker

ENGINE = PitchEngine()
SETTINGS = WorkerSettings(lease_s=0.4)


def stages(names="frontend acoustic decoder"):
    every = [Frontend(LoudnessDetector()), Acoustic(ENGINE), Decoder(ENGINE, NumberVocabulary())]
    return [stage for stage in every if stage.name in names]


def talk(seed: int) -> np.ndarray:
    return np.concatenate([silence(0.5), speech(2.2, seed), silence(1.2), speech(3.1, seed + 1)])


def expected(seed: int) -> list[dict]:
    return lasting(Pipeline(stages()).run(audio_chunks(talk(seed)), [1] * 50))


class Session:
    """A session's client side, without a gateway."""

    def __init__(self, clients: RedisClients, held: Held, seed: int) -> None:
        self.clients = clients
        self.sid = held.session
        self.ingest = Ingest(clients, held)
        self.chunks = audio_chunks(talk(seed))
        self.seed = seed

    @classmethod
    async def open(cls, clients: RedisClients, seed: int) -> "Session":
        return cls(clients, await open_session(clients, SessionOptions()), seed)

    async def send(self, count: int = 1) -> None:
        for chunk in self.chunks[self.ingest.seq : self.ingest.seq + count]:
            await self.ingest.append(chunk.kind, chunk.payload, 0)

    async def events(self) -> list[dict]:
        stored = await self.clients.commands.xrange(self.clients.keys.events(self.sid))
        return [json.loads(fields[b"e"]) for _, fields in stored]

    async def over(self) -> bool:
        return await self.clients.meta_field(self.sid, "status") != b"open"

    async def check(self) -> None:
        """Numbered without holes, and what lasts of it as computed without a fleet."""
        events = await self.events()
        assert [event["event"] for event in events] == list(range(1, len(events) + 1))
        assert lasting(bare(events)) == expected(self.seed)


def bare(events: list[dict]) -> list[dict]:
    """Without what differs from run to run."""
    return [{k: v for k, v in e.items() if k not in ("event", "v", "session", "trace")} for e in events]


def test_partitions_of_a_worker_that_leaves_go_to_the_others_and_no_other_moves():
    before = {p: owner(["a", "b", "c"], p) for p in range(1024)}
    after = {p: owner(["a", "c"], p) for p in range(1024)}

    assert {p for p in before if before[p] != after[p]} == {p for p in before if before[p] == "b"}
    assert all(280 < list(before.values()).count(name) < 400 for name in "abc")


async def test_a_session_stays_with_one_worker_while_it_has_time(clients, monkeypatch):
    monkeypatch.setattr(shards, "STEAL_MS", 10_000)  # on a busy machine nobody has time,
    patient = WorkerSettings(lease_s=4)  # and a heartbeat comes late
    team = [Worker(clients, patient, stages(), name) for name in ("one", "two")]
    for worker in team:
        await worker.start()
    session = await Session.open(clients, 3)
    await wait_until(lambda: all(worker._queue.shares for worker in team))
    for _ in session.chunks:
        await session.send()
        await wait_until(lambda: nothing_is_pending(clients))
    await wait_until(session.over)

    hops = [hop for event in await session.events() for hop in event["trace"]["hops"]]

    assert len({hop["worker"] for hop in hops}) == 1
    await asyncio.gather(*(worker.stop(5) for worker in team))


async def test_a_worker_with_nothing_to_do_takes_what_its_peer_has_no_time_for(clients):
    idle = Worker(clients, WorkerSettings(lease_s=60), stages(), "idle")
    await clients.commands.hset(  # a peer that was heard of just now, and takes nothing
        clients.keys.workers("frontend"), "busy", json.dumps({"seen_ms": wall_ms()})
    )
    await clients.commands.expire(clients.keys.workers("frontend"), 60)
    await idle.start()
    sessions = [await Session.open(clients, seed) for seed in range(4)]
    for session in sessions:
        await session.send(50)
    for session in sessions:
        await wait_until(session.over)
        await session.check()
    await idle.stop(5)


async def nothing_is_pending(clients) -> bool:
    names = [
        clients.keys.ready(p, s)
        for p in range(clients.keys.partitions)
        for s in ("frontend", "acoustic", "decoder")
    ]
    return sum([await clients.commands.xlen(name) for name in names]) == 0


@pytest.mark.parametrize(
    "layout",
    [
        ["frontend acoustic decoder"] * 3,
        ["frontend", "acoustic decoder", "acoustic decoder"],
        ["frontend", "acoustic", "decoder"],
        ["frontend", "acoustic", "acoustic decoder", "decoder"],
    ],
    ids=["fused", "two stages fused", "split", "split and fused side by side"],
)
async def test_two_sessions_over_several_workers_read_as_over_one(clients, layout):
    """One piece of work each in turn: neighbouring chunks of a session go to different workers."""
    workers = [Worker(clients, SETTINGS, stages(names), f"w{i}") for i, names in enumerate(layout)]
    sessions = [await Session.open(clients, seed) for seed in (1, 20)]

    while any(session.ingest.seq < len(session.chunks) for session in sessions):
        for session in sessions:
            await session.send()
        for worker in workers:
            await worker.work()
        workers.append(workers.pop(0))
    while any([await worker.work() for worker in workers]):
        pass

    for session in sessions:
        await session.check()
    assert await nothing_is_pending(clients)


async def test_every_chunk_of_a_session_can_be_done_by_another_worker(clients):
    workers = [Worker(clients, SETTINGS, stages(), f"w{i}") for i in range(3)]
    session = await Session.open(clients, 1)

    for i in range(len(session.chunks)):
        await session.send()
        assert await workers[i % 3].work()

    await session.check()
    hands = [hop["worker"] for event in await session.events() for hop in event["trace"]["hops"]]
    assert set(hands) == {"w0", "w1", "w2"}


async def test_a_worker_that_dies_in_the_middle_of_a_pass_costs_no_word(clients):
    """It took the token and never came back; a peer takes over when the lease has run out."""
    session = await Session.open(clients, 1)
    await session.send(4)
    dead = Worker(clients, SETTINGS, stages(), "dead")
    assert await dead._queue.take()

    peer = Worker(clients, SETTINGS, stages(), "peer")
    await peer.start()
    await session.send(100)
    await wait_until(session.over)
    await peer.stop(5)

    await session.check()
    assert await nothing_is_pending(clients)


async def test_a_paused_workers_late_commit_is_refused(clients):
    """Both computed the same pass; only the one who holds the token may write."""
    session = await Session.open(clients, 1)
    await session.send(4)
    slow, peer = (Worker(clients, SETTINGS, stages(), name) for name in ("slow", "peer"))
    token = await slow._queue.take()
    job = await slow._runner._load(token)
    await wait_until(lambda: _taken_over(peer))
    await peer.work()
    before = await session.events()

    late = run_pass(job, lambda: 0.0, lambda: 0.0)
    with pytest.raises(Stale):
        await slow._runner._commit(token, late)

    assert await session.events() == before


async def _taken_over(worker: Worker) -> bool:
    """Its peers' tokens, of which nobody has been heard for the time of a lease."""
    await worker._take_over()
    waiting = [await worker._clients.commands.xpending(stream, GROUP) for stream in worker._queue._streams]
    return not any(stream["pending"] for stream in waiting)


class PoisonedDetector(LoudnessDetector):
    """A model that can't take one session's audio."""

    def probability(self, state, frame):
        if (frame == 0.5).all():
            raise RuntimeError("cannot take this")
        return super().probability(state, frame)


@pytest.mark.filterwarnings("ignore")
async def test_poison_ends_its_own_session_and_nobody_else_notices(clients):
    stages_ = [Frontend(PoisonedDetector()), *stages("acoustic decoder")]
    workers = [Worker(clients, WorkerSettings(lease_s=0.2), stages_, f"w{i}") for i in range(2)]
    poisoned, healthy = await Session.open(clients, 1), await Session.open(clients, 20)
    await poisoned.ingest.append("audio", np.full(5120, 16384, "<i2").tobytes(), 0)
    for worker in workers:
        await worker.start()

    await healthy.send(100)
    await wait_until(healthy.over)
    await wait_until(poisoned.over)
    for worker in workers:
        await worker.stop(5)

    await healthy.check()
    await poisoned.ingest.check()  # what looks for vanished tokens brings none of a session given up
    (event,) = await poisoned.events()
    assert (event["type"], event["code"], event["event"]) == ("error", "stage_failed", 1)
    assert "failed 3 times" in event["message"]
    dead = [await clients.commands.xrange(clients.keys.dead(p)) for p in range(4)]
    assert [entry[b"s"].decode() for stream in dead for _, entry in stream] == [poisoned.sid]
    assert await nothing_is_pending(clients)


async def test_a_worker_that_gets_tokens_of_several_streams_at_once_keeps_one(clients):
    """The others go back: a peer may be free, and one that dies takes only its own pass along."""
    worker, peer = (Worker(clients, SETTINGS, stages(), name) for name in ("one", "two"))
    for seed in range(8):
        await (await Session.open(clients, seed)).send(2)
    worker._queue.take = _nothing  # type: ignore[method-assign] - what came between a look and the wait

    assert await worker._next()

    given = [await peer._queue.take() for _ in range(8)]
    assert sum(token is not None for token in given) == 7


async def _nothing() -> None:
    pass


async def test_only_a_worker_that_takes_work_is_in_the_heartbeats(clients):
    worker = Worker(clients, SETTINGS, stages("frontend"), "w1")
    beats = clients.keys.workers("frontend")
    assert await clients.commands.hlen(beats) == 0

    await worker.start()
    await wait_until(lambda: clients.commands.hexists(beats, "w1"))
    worker.quiet()
    await wait_until(lambda: _absent(clients, beats))
    await worker.stop(5)


async def _absent(clients, beats) -> bool:
    return not await clients.commands.hexists(beats, "w1")


async def test_a_worker_recovers_from_a_flushed_server(clients):
    """Groups are gone: they are made again, and new sessions are served."""
    worker = Worker(clients, SETTINGS, stages(), "w1")
    await worker.start()
    await clients.commands.flushall()

    await wait_until(lambda: clients.commands.exists(clients.keys.deployment()))
    session = await Session.open(clients, 1)
    await session.send(100)
    await wait_until(session.over)
    await worker.stop(5)

    await session.check()


async def test_fifty_restarts_leave_no_pile_of_consumers(clients):
    session = await Session.open(clients, 1)
    for number in range(50):
        await session.send()
        worker = Worker(clients, SETTINGS, stages(), f"start {number}")
        await worker.start()
        await wait_until(lambda: nothing_is_pending(clients))
        await worker.stop(5)

    ready = clients.keys.ready_of(session.sid, "frontend")
    assert await clients.commands.xinfo_consumers(ready, GROUP) == []
