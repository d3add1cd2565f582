"""Work tokens that vanish: somebody deletes a ready stream, its group, or trims it. Nobody's session waits for ever."""

import asyncio

import pytest

from shared.keys import STAGES
from shared.redis_client import GROUP
from tests.conftest import wait_until
from tests.integration.test_workers import SETTINGS, Session, nothing_is_pending, stages
from workers.worker import Worker

pytestmark = pytest.mark.slow


async def delete(clients, ready: str) -> None:
    await clients.commands.delete(ready)


async def destroy_group(clients, ready: str) -> None:
    await clients.commands.xgroup_destroy(ready, GROUP)


async def trim(clients, ready: str) -> None:
    await clients.commands.xtrim(ready, maxlen=0, approximate=False)


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("vandal", [delete, destroy_group, trim])
async def test_sessions_in_full_flow_do_not_notice(clients, vandal, stage):
    layout = ["frontend", "acoustic", "decoder", "frontend acoustic decoder"]
    team = [Worker(clients, SETTINGS, stages(names), f"w{i}") for i, names in enumerate(layout)]
    for worker in team:
        await worker.start()
    sessions = [await Session.open(clients, seed) for seed in range(4)]

    for number in range(len(sessions[0].chunks)):
        for session in sessions:
            await session.send()
        if number % 4 == 1:
            for partition in range(clients.keys.partitions):
                await vandal(clients, clients.keys.ready(partition, stage))
        await asyncio.sleep(0.02)  # the pace of speech, faster

    for session in sessions:
        await session.send(100)
        await wait_until(session.over)
    for worker in team:
        await worker.stop(5)
    for session in sessions:
        await session.check()
    await wait_until(lambda: nothing_is_pending(clients))


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("vandal", [delete, trim])
async def test_a_session_whose_last_token_vanished_ends_all_the_same(clients, vandal, stage):
    """Nothing more is appended that would bring a new token; its gateway looks after it every second."""
    before = [Worker(clients, SETTINGS, stages(name), name) for name in STAGES[: STAGES.index(stage)]]
    session = await Session.open(clients, 1)
    await session.send(100)
    while any([await worker.work() for worker in before]):
        pass
    await vandal(clients, clients.keys.ready_of(session.sid, stage))

    worker = Worker(clients, SETTINGS, stages(), "w1")
    await worker.start()
    await session.ingest.check()
    await wait_until(session.over)
    await worker.stop(5)

    await session.check()
