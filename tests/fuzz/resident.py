"""The fleet as a test that is no coroutine sees it."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from anyio.from_thread import BlockingPortal

from shared.keys import STAGES
from shared.redis_client import GROUP
from tests.conftest import wait_until
from tests.e2e.conftest import Fleet, rest
from tests.e2e.test_stream import expected_texts, talk, texts
from tests.fuzz.client import END, play
from tests.fuzz.scripts import Script

Check = Callable[[Any], Awaitable[None]]

OF_A_CONNECTION = ("feed", "relay", "read", "watch", "limit", "visit")


@dataclass(frozen=True)
class Resident:
    portal: BlockingPortal
    fleet: Fleet
    secret: str

    def play(self, scripts: Sequence[Script]) -> None:
        """Raises AssertionError for the first that ends otherwise than it should."""
        self.each(lambda script: play(self.fleet, self.secret, script), scripts)

    def each(self, check: Check, inputs: Sequence[Any], at_a_time: int = 24) -> None:
        """Check all inputs, many at a time."""
        self.portal.call(self._each, check, inputs, at_a_time)

    async def _each(self, check: Check, inputs: Sequence[Any], at_a_time: int) -> None:
        waiting = iter(inputs)

        async def one_after_another() -> None:
            for each in waiting:
                await check(each)

        clients = [one_after_another() for _ in range(at_a_time)]
        for error in await asyncio.gather(*clients, return_exceptions=True):
            if error:
                raise error

    def finished_session(self) -> tuple[str, int]:
        """Id, and number of its last event."""
        last = self.portal.call(self._serves)
        return last["session"], last["event"]

    def assert_unharmed(self) -> None:
        """Nothing of all that was remains, and a client that behaves is served as ever."""
        self.portal.call(self._serves)
        self.portal.call(self._settles)

    async def _serves(self) -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {self.secret}"}
        async with self.fleet.connect(additional_headers=headers) as socket:
            for at in range(0, len(talk()), 16_000):
                await socket.send(talk()[at : at + 16_000].tobytes())
            await socket.send(END)
            messages = await asyncio.wait_for(rest(socket), 20)
        assert texts(messages) == expected_texts(talk())
        assert (messages[-1]["type"], socket.close_code) == ("end", 1000)
        return messages[-1]

    async def _settles(self) -> None:
        remains: dict[str, int] = {}

        async def nothing_remains() -> bool:
            remains.clear()
            remains.update(await self._remains())
            return not any(remains.values())

        with contextlib.suppress(TimeoutError):
            await wait_until(nothing_remains, 15)
        assert not any(remains.values()), remains

    async def _remains(self) -> dict[str, int]:
        """What is there while sessions are served, and not afterwards."""
        gateway, keys, redis = self.fleet.gateway, self.fleet.clients.keys, self.fleet.clients.commands
        names = [task.get_name().split()[0] for task in asyncio.all_tasks()]
        remains = {
            "connections": len(gateway._connections),
            "sessions renewed here": len(gateway._registry._held),
            "followers": len(gateway._hub._followers),
            "tasks": sum(name in OF_A_CONNECTION for name in names),
        }
        for partition in range(keys.partitions):
            remains[f"open sessions of {partition}"] = await redis.zcard(keys.open_sessions(partition))
            remains[f"dead letters of {partition}"] = await redis.xlen(keys.dead(partition))
            for stage in STAGES:
                ready = keys.ready(partition, stage)
                remains[f"{ready} waiting"] = await redis.xlen(ready)
                remains[f"{ready} pending"] = (await redis.xpending(ready, GROUP))["pending"]
        return remains
