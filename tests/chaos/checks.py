"""What must hold after a fault."""

import json

from tests.chaos.scene import Scene
from tests.chaos.talker import Talk, Talker
from tests.conftest import wait_until


async def unharmed(scene: Scene) -> None:
    """As if nothing had happened: to every client, in Redis, and to the processes."""
    for talker in scene.talkers:
        as_without_faults(talker)
    await clean(scene)
    assert await scene.dead_letters() == []
    assert scene.fleet.died == []


async def drained(scene: Scene) -> None:
    """And every worker that was asked to go went by itself."""
    await wait_until(lambda: len(scene.fleet.drained) == scene.injections, 15)
    assert set(scene.fleet.drained) == {0}
    await unharmed(scene)


async def poisoned(scene: Scene) -> None:
    """Its own session is told, after three workers; nobody else notices."""
    (victim,) = [talker for talker in scene.talkers if talker.talk.poison]
    scene.talkers.remove(victim)
    assert victim.events[-1]["type"] == "error"
    assert victim.events[-1]["code"] == "stage_failed"
    assert "failed 3 times" in victim.events[-1]["message"]
    assert victim.close_code == 1011
    assert await scene.dead_letters() == [victim.session]
    assert len(scene.fleet.died) == 3
    for talker in scene.talkers:
        as_without_faults(talker)
    await clean(scene)


async def told_and_recovered(scene: Scene) -> None:
    """What is gone is said to be gone, in words; who comes afterwards is served."""
    lost = [talker for talker in scene.talkers if talker.events[-1:] and talker.events[-1]["type"] != "end"]
    assert lost
    for talker in list(scene.talkers):
        if talker in lost:
            assert [problem["code"] for problem in talker.problems] == ["session_lost"]
            scene.talkers.remove(talker)
        else:
            as_without_faults(talker)
    as_without_faults(await scene.talk(Talk(scene.seed + 900)))
    await clean(scene)
    assert scene.fleet.died == []


async def vanished(scene: Scene) -> None:
    """They are gone without a trace as soon as they may not come back any more."""

    async def all_ended() -> bool:
        states = [await scene.clients.meta_field(session, "status") for session in scene.vanished]
        return set(states) == {b"ended"}

    assert len(scene.vanished) == scene.injections == 200
    await wait_until(all_ended, 15)
    await unharmed(scene)


async def clean(scene: Scene) -> None:
    """Nothing pending, nothing that would stay for ever."""
    await wait_until(scene.at_rest, 10)
    assert await scene.lasting_keys() == set()


def as_without_faults(talker: Talker) -> None:
    assert all(problem["retryable"] for problem in talker.problems), talker.problems
    assert [event["event"] for event in talker.events] == list(range(1, len(talker.events) + 1))
    assert json.dumps(talker.lasting()) == json.dumps(talker.talk.expected())
    assert (talker.close_code, talker.chunks_lost(), talker.duplicates()) == (1000, 0, 0)
