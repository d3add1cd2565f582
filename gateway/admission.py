"""Whether the fleet can take another session, measured once a second; those that run are left alone.

The measure is the queue's age: how long the token at its head has waited for a worker. A busy fleet takes all waiting
chunks of a session in one pass, so waits level off (README: 1.0 to 1.6 s with 24 sessions where two cores do ten); only
when they pass a session's backlog, 10 chunks of 320 ms, are running sessions held back. 3 s is just before that.
"""

import asyncio

import structlog

from shared import metrics
from shared.errors import Overloaded, ScribeError
from shared.keys import STAGES
from shared.redis_client import GROUP, RedisClients
from shared.settings import LimitSettings
from shared.tasks import cancel

log = structlog.get_logger()

LOOK_S = 1.0
# One late token may be chance: a worker starting, a pass of a very long backlog.
LOOKS = 2
_RETRY_S = 5.0


class Admission:
    """start ──> looking ──stop──> stopped"""

    def __init__(self, clients: RedisClients, limits: LimitSettings) -> None:
        self._clients = clients
        self._limits = limits
        self._late = 0  # looks in a row that found the queue too old
        self._age_s = 0.0
        self.ages = dict.fromkeys(
            STAGES, 0.0
        )  # seconds that each stage's oldest token has waited, at the last look
        self._memory: float | None = None  # share of maxmemory in use
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="admission")

    def quiet(self) -> None:
        """Nothing to stop taking: it only looks."""

    async def stop(self, _deadline_s: float = 0) -> None:
        await cancel([self._task])

    @property
    def problem(self) -> str | None:
        """Why the fleet can't take another session; None when it can."""
        if self._limits.queue_s and self._late >= LOOKS:
            return f"overloaded: work waits {self._age_s:.1f} s for a worker, more than {self._limits.queue_s:g} s"
        if self._memory is not None and self._memory > self._limits.memory_share:
            return f"overloaded: Redis' memory is {self._memory:.0%} full"
        return None

    def check(self, connected: int) -> None:
        """Raise Overloaded when no new session should be opened. `connected`: sessions at this gateway."""
        if problem := self.problem:
            raise Overloaded(problem, retry_after_s=_RETRY_S)
        most = self._limits.gateway_sessions
        if most and connected >= most:
            raise Overloaded(f"this gateway serves {most} sessions and no more", retry_after_s=_RETRY_S)

    async def look(self) -> None:
        """Measure. Raises RedisUnavailable."""
        self.ages = await self._ages()
        for stage, age_s in self.ages.items():
            metrics.QUEUE_AGE.labels(stage).set(age_s)
        self._age_s = max(self.ages.values())
        self._late = self._late + 1 if self._age_s > self._limits.queue_s else 0
        self._memory = await self._memory_share()

    async def _run(self) -> None:
        while True:
            try:
                await self.look()
            except ScribeError as error:
                # Readiness says so by itself; what was measured last may be wrong by now.
                self._late = 0
                log.warning("queue_not_measured", why=str(error))
            except Exception:
                # The top of the loop: without it a full fleet would go on taking sessions.
                log.exception("admission_failed")
            await asyncio.sleep(LOOK_S)

    async def _ages(self) -> dict[str, float]:
        """Seconds that the oldest token of each stage has waited."""
        oldest = dict.fromkeys(STAGES, 0.0)
        for partition in range(self._clients.keys.partitions):
            ready = [self._clients.keys.ready(partition, stage) for stage in STAGES]
            ages = await self._clients.run("waiting", ready, [GROUP])
            oldest = {s: max(oldest[s], age / 1000) for s, age in zip(STAGES, ages, strict=True)}
        return oldest

    async def _memory_share(self) -> float | None:
        shares = [
            int(info["used_memory"]) / limit
            for info in await self._clients.infos("memory")
            if (limit := int(info.get("maxmemory", 0)))
        ]
        return max(shares, default=None)
