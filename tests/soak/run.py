"""Ten sessions at a time on a real fleet, one leaving as the next comes, and a look at what the fleet uses every 10 s."""

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.resources import as_file, files
from itertools import cycle

from ops.fleet import Fleet
from shared.errors import ScribeError
from shared.media import MediaDecoder
from shared.redis_client import connect
from shared.settings import GatewaySettings, RedisSettings
from tests.soak.meters import Meters, Sample
from tests.soak.visits import VISITS, some_of

SESSIONS = 10
# What a session leaves in Redis goes after this time instead of an hour, and its client is awaited for 5 s instead of
# 30: the run reaches its steady state in a minute.
_ENVIRONMENT = {
    "SCRIBE_REDIS_SESSION_TTL_S": "30",
    "SCRIBE_GATEWAY_RESUME_S": "5",
    "SCRIBE_LOG_LEVEL": "WARNING",
}


@dataclass
class Soak:
    seconds: float
    look_s: float
    say: Callable[[Sample], None]
    seed: int = 1
    samples: list[Sample] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    done: int = 0

    async def run(self) -> None:
        """Raises psutil.NoSuchProcess when a part of the fleet dies."""
        pcm = demo_recording()
        redis = RedisSettings(url="", session_ttl_s=30)
        async with Fleet(redis=redis, gateway=GatewaySettings(port=0), environment=_ENVIRONMENT) as fleet:
            clients = await connect(fleet.redis)
            self._start = time.monotonic()
            async with asyncio.TaskGroup() as tasks:
                for number in range(SESSIONS):
                    tasks.create_task(self._come_and_go(fleet.url, pcm, random.Random(self.seed + number)))
                tasks.create_task(self._look(Meters(clients)))
            await clients.stop()

    async def _come_and_go(self, url: str, pcm: bytes, chance: random.Random) -> None:
        for visit in cycle(chance.sample(VISITS, len(VISITS))):
            if self._elapsed() >= self.seconds:
                return
            try:
                await visit(url, some_of(pcm, chance))
            except (ScribeError, AssertionError) as error:
                self.failures.append(f"{visit.__name__}: {error}")
            self.done += 1

    async def _look(self, meters: Meters) -> None:
        for at in range(1, round(self.seconds / self.look_s) + 1):
            await asyncio.sleep(at * self.look_s - self._elapsed())
            self.samples.append(await meters.read(self._elapsed(), self.done))
            self.say(self.samples[-1])

    def _elapsed(self) -> float:
        return time.monotonic() - self._start


def demo_recording() -> bytes:
    with as_file(files("ops") / "assets/demo.flac") as file, MediaDecoder() as decoder:
        return decoder.decode(file)
