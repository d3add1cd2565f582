"""Two releases whose stages keep their state differently, in one fleet at the same time (workers/peers.py)."""

import pytest
from structlog.testing import capture_logs

from tests.conftest import wait_until
from tests.integration.test_workers import SETTINGS, Session, stages
from workers.worker import Worker


def release(schema: int, names: str = "frontend acoustic decoder"):
    made = stages(names)
    for stage in made:
        stage.schema = schema
    return made


async def beating(clients, *releases) -> list[Worker]:
    """Workers whose heartbeats are there; what they do, the test says."""
    team = [Worker(clients, SETTINGS, stages_, f"w{i}") for i, stages_ in enumerate(releases)]
    for worker in team:
        worker._leases.start()
    for worker in team:
        await wait_until(lambda worker=worker: _seen(worker, len(team)))
    return team


async def _seen(worker: Worker, team: int) -> bool:
    stage = worker._queue._stages[0]
    return len(await worker._clients.commands.hkeys(worker._clients.keys.workers(stage))) == team


async def in_turns(session: Session, team: list[Worker], chunks: int) -> None:
    """Whoever it is offered to first is another one for every chunk."""
    for _ in range(chunks):
        await session.send()
        team.append(team.pop(0))
        while any([await worker.work() for worker in team]):
            pass


@pytest.mark.parametrize("names", ["frontend acoustic decoder", "acoustic decoder"])
async def test_while_both_releases_live_a_session_stays_with_its_own(clients, names):
    rest = [] if "frontend" in names else [release(1, "frontend")]
    team = await beating(clients, release(7, names), release(8, names))
    team += [Worker(clients, SETTINGS, stages_, "rest") for stages_ in rest]
    session = await Session.open(clients, 1)

    with capture_logs() as logs:
        await in_turns(session, team, len(session.chunks))

    assert "state_reset" not in [entry["event"] for entry in logs]
    await session.check()
    for worker in team:
        await worker.stop(1)


async def test_when_the_last_worker_of_a_release_has_left_its_sessions_begin_anew_once(clients):
    old, new = await beating(clients, release(7), release(8))
    session = await Session.open(clients, 1)
    await session.send(4)
    assert await old.work()
    await in_turns(session, [old, new], 5)

    with capture_logs() as logs:
        await old.stop(1)
        await in_turns(session, [new], len(session.chunks) - 9)

    resets = [entry["stage"] for entry in logs if entry["event"] == "state_reset"]
    assert sorted(resets) == ["acoustic", "decoder", "frontend"]
    assert await session.over()
    events = await session.events()
    assert [event["event"] for event in events] == list(range(1, len(events) + 1))
    assert events[-1]["type"] == "end"
    await new.stop(1)


async def test_nobody_begins_anew_while_silence_may_be_an_outages(clients):
    (new,) = await beating(clients, release(8))
    old = Worker(clients, SETTINGS, release(7), "old")
    session = await Session.open(clients, 1)
    await session.send(4)
    assert await old.work()
    await session.send(4)

    new._peers.unheard()
    with capture_logs() as logs:
        assert await new.work()
        assert "state_reset" not in [entry["event"] for entry in logs]
        await wait_until(lambda: new._peers.judged)
        assert await new.work()
        assert "state_reset" in [entry["event"] for entry in logs]
    await new.stop(1)
