"""Redis changes hands under load: Sentinel and Cluster failovers, planned and not, and a slot that moves.

Six sessions send a chunk every 60 ms to two workers, and each has a follower. What must hold: every acknowledged chunk
is there (none was sent twice), every session says what it says without a fault, each follower sees every event once.
"""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable

import numpy as np
import pytest

from gateway.ingest import Ingest
from gateway.sessions import open_session
from shared import metrics
from shared.protocol import SessionOptions
from shared.redis_client import RedisClients, connect
from shared.settings import RedisSettings, WorkerSettings
from shared.transcripts import TranscriptHub
from tests.integration.test_workers import bare, stages, talk
from tests.pipeline import Pipeline, audio_chunks, lasting
from tests.rigs import ClusterRig, SentinelRig
from workers.worker import Worker

pytestmark = pytest.mark.slow

SESSIONS = 6
PACE_S = 0.06
BEFORE_S = 1.0


class Talk:
    """One session, its follower, and how long its slowest append took."""

    def __init__(self, clients: RedisClients, hub: TranscriptHub, seed: int) -> None:
        self.clients, self.hub = clients, hub
        self.chunks = audio_chunks(np.concatenate([talk(seed + 100 * n) for n in range(3)]))
        self.stall_s = 0.0
        self.heard: list[dict] = []

    async def run(self) -> None:
        held = await open_session(self.clients, SessionOptions())
        self.session = held.session
        follower = await self.hub.follow(held.session)
        listening = asyncio.create_task(self._listen(follower))
        ingest = Ingest(self.clients, held)
        for chunk in self.chunks:
            began = time.monotonic()
            await ingest.append(chunk.kind, chunk.payload, 0)
            self.stall_s = max(self.stall_s, time.monotonic() - began)
            await asyncio.sleep(PACE_S)
        await listening
        await follower.close()

    async def _listen(self, follower) -> None:
        async for event in follower:
            self.heard.append(json.loads(event.raw))
            if self.heard[-1]["type"] in ("end", "error"):
                return

    def check(self) -> None:
        assert [event["event"] for event in self.heard] == list(range(1, len(self.heard) + 1))
        assert lasting(bare(self.heard)) == lasting(Pipeline(stages()).run(self.chunks, [1] * 500))


async def under_load(url: str, fault: Callable[[], Awaitable[None]], *, sharded: bool = False) -> float:
    """Run the fault in the middle of six sessions and check them; gives the longest stall of an append in s."""
    clients = await connect(RedisSettings(url=url, partitions=8, sharded_pubsub=sharded))
    hub = TranscriptHub(clients)
    await hub.start()
    workers = [Worker(clients, WorkerSettings(lease_s=1), stages(), f"w{i}") for i in range(2)]
    for worker in workers:
        await worker.start()
    repeated = metrics.REPEATED._value.get()
    talks = [Talk(clients, hub, seed) for seed in range(SESSIONS)]
    running = [asyncio.create_task(each.run()) for each in talks]
    try:
        await asyncio.sleep(BEFORE_S)
        await fault()
        async with asyncio.timeout(40):
            await asyncio.gather(*running)
        for each in talks:
            each.check()
        assert metrics.REPEATED._value.get() == repeated
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        for worker in workers:
            await worker.stop(5)
        await hub.stop()
        await clients.stop()
    stall_s = max(each.stall_s for each in talks)
    print(f"longest stall of an append: {stall_s:.2f} s")
    return stall_s


async def test_a_planned_sentinel_failover_loses_nothing_acknowledged():
    with SentinelRig() as rig:
        assert await under_load(rig.url, lambda: asyncio.to_thread(rig.failover)) < 3


async def test_a_killed_master_loses_nothing_acknowledged():
    with SentinelRig() as rig:
        assert await under_load(rig.url, lambda: asyncio.to_thread(rig.kill_master)) < 4


async def test_a_killed_primary_of_a_cluster_loses_nothing_acknowledged():
    with ClusterRig() as rig:
        slot = rig.slot_of("{p00}")
        assert await under_load(rig.url, lambda: asyncio.to_thread(rig.kill_primary, slot)) < 6


@pytest.mark.parametrize("sharded", [False, True], ids=["plain channels", "sharded channels"])
async def test_a_planned_failover_in_a_cluster_is_hardly_noticed(sharded):
    with ClusterRig() as rig:
        slot = rig.slot_of("{p00}")

        async def fault() -> None:
            await asyncio.to_thread(rig.failover, slot)

        assert await under_load(rig.url, fault, sharded=sharded) < 2


@pytest.mark.parametrize("sharded", [False, True], ids=["plain channels", "sharded channels"])
async def test_slots_that_move_under_load_lose_nothing(sharded):
    with ClusterRig() as rig:
        slots = [rig.slot_of(f"{{p{n:02d}}}") for n in range(4)]

        async def fault() -> None:
            for slot in slots:
                await asyncio.to_thread(rig.move_slot, slot)

        assert await under_load(rig.url, fault, sharded=sharded) < 2
