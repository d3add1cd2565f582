"""Redis changes hands under load: Sentinel and Cluster failovers, planned and not, and a slot that moves.

Six sessions send a chunk every 60 ms to two workers, and each has a follower. What must hold: every acknowledged chunk
is there (none was sent twice), every session says what it says without a fault, each follower sees every event once.
"""

import asyncio
import gc
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pytest

from gateway.sessions import Held, open_session
from shared import metrics
from shared.protocol import SessionOptions
from shared.redis_client import RedisClients, connect
from shared.settings import RedisSettings, WorkerSettings
from shared.transcripts import TranscriptHub
from tests.integration.test_rollback import Client
from tests.integration.test_workers import stages, talk
from tests.pipeline import Pipeline, audio_chunks, lasting
from tests.rigs import ClusterRig, SentinelRig, wait_for
from workers.worker import Worker

# redis-py forgets a Cluster's node that is not in the newest map without closing its connections in use; Python complains
# when it finds them, before or after their event loop is closed.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:(?i)unclosed:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

SESSIONS = 6
PACE_S = 0.06
BEFORE_S = 1.0


@pytest.fixture(autouse=True)
def forgotten_connections() -> Iterator[None]:
    """Are found here and not in the test that comes next."""
    yield
    gc.collect()


class Talk(Client):
    """What a gateway does for one session, with how long its slowest append took."""

    def __init__(self, clients: RedisClients, hub: TranscriptHub, held: Held, seed: int) -> None:
        super().__init__(clients, hub, held)
        self.chunks = audio_chunks(np.concatenate([talk(seed + 100 * n) for n in range(3)]))
        self.stall_s = 0.0

    async def run(self) -> None:
        async with self:
            for chunk in self.chunks:
                began = time.monotonic()
                await self.ingest.append(chunk.kind, chunk.payload, 0)
                self.stall_s = max(self.stall_s, time.monotonic() - began)
                await asyncio.sleep(PACE_S)
            await self.over()
        self.check(lasting(Pipeline(stages()).run(self.chunks, [1] * 500)))


@dataclass
class Outcome:
    stall_s: float  # of the slowest append
    repeated: float  # chunks that were acknowledged, lost by Redis, and sent again


async def under_load(url: str, fault: Callable[[], Awaitable[None]], *, sharded: bool = False) -> Outcome:
    """Run the fault in the middle of six sessions, and check that each says what it says without."""
    clients = await connect(RedisSettings(url=url, partitions=8, sharded_pubsub=sharded))
    hub = TranscriptHub(clients)
    await hub.start()
    workers = [Worker(clients, WorkerSettings(lease_s=1), stages(), f"w{i}") for i in range(2)]
    for worker in workers:
        await worker.start()
    repeated = metrics.REPEATED._value.get()
    opened = [await open_session(clients, SessionOptions()) for _ in range(SESSIONS)]
    talks = [Talk(clients, hub, held, seed) for seed, held in enumerate(opened)]
    running = [asyncio.create_task(each.run()) for each in talks]
    try:
        await asyncio.sleep(BEFORE_S)
        await fault()
        async with asyncio.timeout(40):
            await asyncio.gather(*running)
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        for worker in workers:
            await worker.stop(5)
        await hub.stop()
        await clients.stop()
    outcome = Outcome(max(each.stall_s for each in talks), metrics.REPEATED._value.get() - repeated)
    print(outcome)  # noqa: T201 - the figures in docs/reliability.md; shown by pytest -s
    return outcome


async def test_what_only_the_old_master_had_at_a_planned_failover_is_sent_again():
    """Between the promotion and the Sentinels' word the old master goes on with the other replica: about a second."""
    with SentinelRig() as rig:
        outcome = await under_load(rig.url, lambda: asyncio.to_thread(rig.failover))
    assert outcome.stall_s < 3


async def test_a_coordinated_failover_loses_nothing_acknowledged():
    """Valkey 9: the old master is paused until the new one has everything."""
    with SentinelRig() as rig:
        outcome = await under_load(rig.url, lambda: asyncio.to_thread(rig.failover, coordinated=True))
    assert outcome.repeated == 0
    assert outcome.stall_s < 4


async def test_a_killed_master_loses_nothing_acknowledged():
    """Its Sentinels may need several votes, and may leave the new one without a replica for 10 s, in which it takes no writes.

    What is ours begins when it does.
    """
    without_s = 0.0

    def kill_and_wait(rig: SentinelRig) -> None:
        nonlocal without_s
        victim, began = rig.kill_master(), time.monotonic()
        wait_for(lambda: rig.master is not victim and rig.master.tell("SET", "probe", "1", "PX", 1000), 30)
        without_s = time.monotonic() - began

    with SentinelRig() as rig:
        outcome = await under_load(rig.url, lambda: asyncio.to_thread(kill_and_wait, rig))
    assert outcome.repeated == 0
    assert outcome.stall_s - without_s < 2


async def test_a_killed_primary_of_a_cluster_loses_nothing_acknowledged():
    with ClusterRig() as rig:
        slot = rig.slot_of("{p00}")
        outcome = await under_load(rig.url, lambda: asyncio.to_thread(rig.kill_primary, slot))
    assert outcome.repeated == 0
    assert outcome.stall_s < 6  # node time-out 2 s


@pytest.mark.parametrize("sharded", [False, True], ids=["plain channels", "sharded channels"])
async def test_a_planned_failover_in_a_cluster_loses_nothing(sharded):
    with ClusterRig() as rig:
        slot = rig.slot_of("{p00}")
        outcome = await under_load(rig.url, lambda: asyncio.to_thread(rig.failover, slot), sharded=sharded)
    assert outcome.repeated == 0
    assert outcome.stall_s < 2


@pytest.mark.parametrize("sharded", [False, True], ids=["plain channels", "sharded channels"])
async def test_slots_that_move_under_load_lose_nothing(sharded):
    with ClusterRig() as rig:
        slots = [rig.slot_of(f"{{p{n:02d}}}") for n in range(4)]

        async def fault() -> None:
            for slot in slots:
                await asyncio.to_thread(rig.move_slot, slot)

        outcome = await under_load(rig.url, fault, sharded=sharded)
    assert outcome.repeated == 0
    assert outcome.stall_s < 2
