"""What must hold after a fault."""

import json

from tests.chaos.scene import Scene
from tests.chaos.talker import Talker
from tests.conftest import wait_until


async def unharmed(scene: Scene) -> None:
    """As if nothing had happened: to every client, in Redis, and to the processes."""
    for talker in scene.talkers:
        as_without_faults(talker)
    await clean(scene)
    assert await scene.dead_letters() == []
    assert scene.fleet.died == []


async def clean(scene: Scene) -> None:
    """Nothing pending, nothing that would stay for ever."""
    await wait_until(scene.at_rest, 10)
    assert await scene.lasting_keys() == set()


def as_without_faults(talker: Talker) -> None:
    assert talker.problems == []
    assert [event["event"] for event in talker.events] == list(range(1, len(talker.events) + 1))
    assert json.dumps(talker.lasting()) == json.dumps(talker.talk.expected())
    assert (talker.close_code, talker.chunks_lost(), talker.duplicates()) == (1000, 0, 0)
