"""What is done otherwise on a Cluster: tokens are taken one partition at a time, and channels may be sharded."""

import asyncio
import json

import pytest

from gateway.ingest import Ingest
from gateway.sessions import open_session
from shared.clock import mono_ms
from shared.errors import Misconfigured
from shared.protocol import SessionOptions
from shared.redis_client import GROUP, connect
from shared.settings import RedisSettings
from tests.conftest import wait_until
from tests.rigs import Server
from tests.servers import programs
from workers.peers import Peers
from workers.shards import ShardQueue
from workers.tokens import STEAL_MS

pytestmark = pytest.mark.slow

STAGES = ("frontend", "acoustic", "decoder")


@pytest.fixture(params=[pytest.param("cluster", marks=pytest.mark.xdist_group("cluster"))])
def place(request, places) -> str:
    places(request.param)
    return request.param


@pytest.fixture
async def queue(clients):
    """A queue whose watchers have seen what is there."""
    queue = ShardQueue(clients, STAGES, "w1")
    queue._watch_all()
    await wait_until(lambda: all(p.listed for p in queue._mine.values()))
    yield queue
    await queue.stop()


async def feed(clients) -> str:
    held = await open_session(clients, SessionOptions())
    await Ingest(clients, held).append("audio", b"..", 0)
    return held.session


def seen(queue: ShardQueue) -> int:
    return sum(len(ids) for p in queue._mine.values() for ids in p.seen.values())


async def test_sessions_are_served_in_the_order_their_work_came_over_all_partitions(clients, queue):
    sessions = [await feed(clients) for _ in range(24)]
    await wait_until(lambda: seen(queue) == 24)

    taken = [await queue.take() for _ in sessions]

    assert {token.session for token in taken} == set(sessions)
    arrivals = [int(token.id.split("-")[0]) for token in taken]
    assert arrivals == sorted(arrivals)
    assert await queue.take() is None


async def test_an_idle_worker_is_woken_by_a_token_and_none_is_given_to_it_unasked(clients, queue):
    waiting = asyncio.create_task(queue.wait())
    await asyncio.sleep(0)
    session = await feed(clients)

    assert await asyncio.wait_for(waiting, 0.5) == []  # BLOCK_MS is a second
    pending = await clients.commands.xpending(clients.keys.ready_of(session, "frontend"), GROUP)
    assert pending["pending"] == 0
    assert (await queue.take()).session == session


async def test_a_stopped_queue_leaves_every_token_to_others(clients, queue):
    waiting = asyncio.create_task(queue.wait())
    await queue.stop()
    session = await feed(clients)

    assert (await ShardQueue(clients, STAGES, "w2").take()).session == session
    waiting.cancel()


async def test_tokens_of_other_workers_partitions_are_taken_only_once_they_have_waited(clients, queue):
    other = ShardQueue(clients, STAGES, "w2")
    for worker in ("w1", "w2"):
        for stage in STAGES:
            args = [worker, 60_000, json.dumps({"in_flight": 0})]
            await clients.run("beat", [clients.keys.workers(stage)], args)
    for each, name in ((queue, "w1"), (other, "w2")):
        await each.divide(Peers(clients, name, 60_000))
    assert queue.shares
    assert other.shares
    session = await feed(clients)
    began, partition = mono_ms(), clients.keys.partition(session)
    owner, stranger = (queue, other) if partition in queue._mine else (other, queue)

    assert await stranger.take() is None
    taken = []

    async def is_given() -> bool:
        taken.append(await stranger.take())
        return taken[-1] is not None

    await wait_until(is_given)
    assert taken[-1].session == session
    assert mono_ms() - began > STEAL_MS / 2
    assert await owner.take() is None
    await other.stop()


async def test_servers_without_sharded_channels_are_refused_with_a_clear_error():
    old = programs().get("redis 6.2")
    if old is None:
        pytest.skip("Redis 6.2 is not here: make servers")
    with Server(old) as server, pytest.raises(Misconfigured, match=r"needs Redis 7.0 or later"):
        await connect(RedisSettings(url=server.url, sharded_pubsub=True))
