"""The table of faults: one line each."""

import signal

from ops.readiness import Group
from tests.chaos.scene import Fault, Scene


async def nothing(_scene: Scene) -> None:
    """For comparison."""


async def kill_a_worker(scene: Scene) -> None:
    scene.fleet.some_worker().send(signal.SIGKILL)
    scene.injections += 1


FAULTS = (
    Fault("no fault", nothing),
    Fault("kill -9 of a random worker every second", kill_a_worker, 1, for_s=60, clients=6, layout=(Group("all", 4),)),
)
