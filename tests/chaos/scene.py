"""One fault's stage: a Redis, a fleet of processes on it, clients that talk, and what became of it all."""

import asyncio
import random
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ops.readiness import Group
from shared.keys import STAGES
from shared.redis_client import GROUP, RedisClients, connect
from shared.settings import RedisSettings
from tests.chaos.fleet import Fleet
from tests.chaos.proxy import Proxy
from tests.chaos.talker import Talk, Talker
from tests.conftest import wait_until
from tests.rigs import Server


@dataclass(frozen=True)
class Fault:
    """One row of the table: what is done to a fleet at work, how often, and what must hold afterwards."""

    name: str
    inject: Callable[["Scene"], Awaitable[None]]
    every_s: float | None = None  # again and again; None: once
    for_s: float = 6.0  # how long clients begin new talks
    clients: int = 4
    pace: float = 2.0  # audio seconds per second
    layout: tuple[Group, ...] = (Group("all", 2),)
    gateways: int = 1
    rig: Callable[[], AbstractContextManager[Any]] = Server
    settings: Mapping[str, str] = field(default_factory=dict)
    check: Callable[["Scene"], Awaitable[None]] | None = None  # None: unharmed
    stall_s: float = 15.0  # what a listener may have to wait at most

    @property
    def slug(self) -> str:
        return re.sub(r"\W+", "-", self.name).strip("-")


class Scene:
    def __init__(
        self, fault: Fault, seed: int, *, rig: Any, proxy: Proxy, fleet: Fleet, clients: RedisClients
    ) -> None:
        self.fault, self.seed = fault, seed
        self.rig, self.proxy, self.fleet, self.clients = rig, proxy, fleet, clients
        self.random = random.Random(seed)
        self.talkers: list[Talker] = []
        self.injections = 0
        self.vanished: list[str] = []  # sessions whose clients left without a word
        self.over = asyncio.Event()

    @property
    def redis(self):
        """Straight to the server."""
        return self.clients.commands

    async def play(self) -> None:
        """Talk and inject until the time is over; then let what is in flight come to rest."""
        end = time.monotonic() + self.fault.for_s
        injecting = asyncio.create_task(self._inject())
        try:
            await asyncio.gather(*(self._keep_talking(n, end) for n in range(self.fault.clients)))
        finally:
            self.over.set()
        await injecting
        self.proxy.heal()

    async def talk(self, talk: Talk, **options) -> Talker:
        """One more session, from its beginning to its end."""
        talker = Talker(talk, self.fault.pace, **options)
        self.talkers.append(talker)
        await talker.run(self.fleet.urls)
        return talker

    async def _keep_talking(self, number: int, end: float) -> None:
        while time.monotonic() < end:
            await self.talk(Talk(self.seed + number))
            number += self.fault.clients

    async def _inject(self) -> None:
        await wait_until(
            lambda: len(self.talkers) >= self.fault.clients and all(t.heard for t in self.talkers)
        )
        while not self.over.is_set():
            await self.fault.inject(self)
            if self.fault.every_s is None:
                break
            try:
                await asyncio.wait_for(self.over.wait(), self.fault.every_s)
            except TimeoutError:
                continue

    async def ready_streams(self) -> list[str]:
        keys = self.clients.keys
        return [keys.ready(partition, stage) for partition in range(keys.partitions) for stage in STAGES]

    async def at_rest(self) -> bool:
        return sum([await self.redis.xlen(name) for name in await self.ready_streams()]) == 0

    async def holds_a_token(self, pid: int) -> bool:
        """Whether the worker of this process has one in hand. Workers' names are host-process-random."""
        pipe = self.redis.pipeline(transaction=False)
        for name in await self.ready_streams():
            pipe.xpending(name, GROUP)
        found = [summary for summary in await pipe.execute(raise_on_error=False) if isinstance(summary, dict)]
        owners = [owner["name"].decode() for summary in found for owner in summary["consumers"]]
        return any(owner.split("-")[-2] == str(pid) for owner in owners)

    async def dead_letters(self) -> list[str]:
        keys = self.clients.keys
        streams = [await self.redis.xrange(keys.dead(partition)) for partition in range(keys.partitions)]
        return [entry[b"s"].decode() for stream in streams for _, entry in stream]

    async def lasting_keys(self) -> set[str]:
        """Keys without an expiry that are not meant to last."""
        found = [key.decode() async for key in self.redis.scan_iter("*")]
        return {key for key in found if await self.redis.pttl(key) == -1} - self.clients.keys.permanent()


@asynccontextmanager
async def scene(fault: Fault, seed: int, folder: Path) -> AsyncIterator[Scene]:
    """The fleet reaches one server through the proxy; Sentinels and Clusters, which name their servers, directly."""
    with fault.rig() as rig:
        single = isinstance(rig, Server)
        proxy = Proxy(rig.address if single else ("", 0), seed)
        await proxy.start()
        fleet = Fleet(
            proxy.url if single else rig.url,
            fault.layout,
            gateways=fault.gateways,
            settings=fault.settings,
            folder=folder,
            seed=seed,
        )
        clients = await connect(RedisSettings(url=rig.url))
        try:
            await fleet.start(clients)
            yield Scene(fault, seed, rig=rig, proxy=proxy, fleet=fleet, clients=clients)
        finally:
            await fleet.stop()
            await clients.stop()
            await proxy.stop()
