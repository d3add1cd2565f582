"""When a fleet can serve: the gateway says so, and every worker started has announced itself.

Workers write their first heartbeat once their model is warm, so a new one in the stage's hash is a ready one.
"""

import asyncio
import http.client
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from shared.errors import Misconfigured, StageFailed
from shared.keys import STAGES
from shared.redis_client import RedisClients, translated

# Loading and warming a model takes 3 s on an idle core; this is for eight of them on two busy ones.
_START_S = 90
_POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class Group:
    """Worker processes of one kind: `name` is what `python -m workers` takes."""

    name: str
    count: int

    @property
    def stages(self) -> tuple[str, ...]:
        return STAGES if self.name == "all" else tuple(self.name.split("+"))

    def __post_init__(self) -> None:
        if unknown := [stage for stage in self.stages if stage not in STAGES]:
            raise Misconfigured(
                f"no stage is called {unknown[0]!r}: use {', '.join(STAGES)}, some joined by +, or all"
            )
        if self.count < 1:
            raise Misconfigured(f"{self.count} processes of {self.name}: at least 1 is needed")


async def heartbeats(clients: RedisClients, groups: Sequence[Group]) -> dict[str, set[bytes | str]]:
    """Give the workers known now, per stage of the groups."""
    stages = {stage for group in groups for stage in group.stages}
    with translated():
        return {stage: set(await clients.commands.hkeys(clients.keys.workers(stage))) for stage in stages}


async def wait_for_workers(
    clients: RedisClients, groups: Sequence[Group], before: Mapping[str, set[bytes | str]]
) -> None:
    """Wait until each stage has as many workers, not counting those `before`, as the groups hold."""

    async def all_announced() -> bool:
        now = await heartbeats(clients, groups)
        wanted = {stage: sum(group.count for group in groups if stage in group.stages) for stage in now}
        return all(len(now[stage] - before[stage]) >= wanted[stage] for stage in now)

    await _poll(all_announced, "workers were not all ready")


async def wait_for_gateway(host: str, port: int) -> None:
    """Wait until /readyz answers 200."""
    await _poll(lambda: asyncio.to_thread(_readyz, host, port), f"gateway was not ready on {host}:{port}")


async def _poll(holds: Callable[[], Awaitable[bool]], complaint: str) -> None:
    try:
        async with asyncio.timeout(_START_S):
            while not await holds():  # noqa: ASYNC110 - neither Redis nor HTTP tells when
                await asyncio.sleep(_POLL_S)
    except TimeoutError as error:
        raise StageFailed(
            f"the {complaint} within {_START_S} s; see the messages above and `streamscribe doctor`"
        ) from error


def _readyz(host: str, port: int) -> bool:
    connection = http.client.HTTPConnection(host, port, timeout=2)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
