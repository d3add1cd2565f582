"""Work tokens on Redis Cluster, where no command may touch two partitions.

So a token is taken from one partition at a time, and a blocking read would need one connection for each, every one of
which might bring a token while only one can be worked on. Instead each of our partitions has a watcher that reads its
new tokens without taking them (XREAD, not XREADGROUP): it can be cancelled at any time and hoards nothing. What it saw
tells which partition's token has waited longest, which comes first as it does on one server.
"""

import asyncio
from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from contextlib import suppress

import structlog

from shared.errors import ScribeError
from shared.redis_client import BLOCK_MS, GROUP, RedisClients
from shared.tasks import cancel
from workers.peers import Peers
from workers.tokens import STEAL_MS, Token, TokenQueue

log = structlog.get_logger()

# Partitions of others looked into at each idle moment (STEAL_MS): all of sixteen in a fifth of a second.
_STEALS = 4
_PAUSE_S = 0.2

_Id = tuple[int, int]
_UNKNOWN: _Id = (0, 0)  # before all others


class _Partition:
    """What is known of the tokens that wait in some streams of one partition."""

    def __init__(self, streams: Sequence[str]) -> None:
        self.streams = list(streams)
        self.seen: dict[str, deque[_Id]] = {stream: deque() for stream in streams}
        self.listed = False  # all that waits has been seen
        self.looks = 0
        self.watcher: asyncio.Task[None] | None = None

    def oldest(self) -> _Id | None:
        """Number of the one seen that has waited longest."""
        return min((ids[0] for ids in self.seen.values() if ids), default=None)

    def gone(self, through: dict[str, _Id]) -> None:
        """Up to these numbers all have been given to somebody."""
        for stream, last in through.items():
            ids = self.seen[stream]
            while ids and ids[0] <= last:
                ids.popleft()


class ShardQueue(TokenQueue):
    """The same as one consumer of a Cluster sees it. start: with the first `divide`; `stop` ends the watchers."""

    def __init__(self, clients: RedisClients, stages: Sequence[str], consumer: str) -> None:
        super().__init__(clients, stages, consumer)
        self._mine = self._grouped(self._own)
        self._theirs: list[list[str]] = []
        self._wake = asyncio.Event()

    async def take(self) -> Token | None:
        """The token that has waited longest, of our own partitions if they have any."""
        waiting = [p for p in self._mine.values() if p.oldest() or not p.listed]
        for partition in sorted(waiting, key=lambda p: (p.oldest() or _UNKNOWN, p.looks)):
            partition.looks += 1
            if token := await self._take_of(partition):
                return token
        for _ in range(min(_STEALS, len(self._theirs))):
            self._theirs.append(self._theirs.pop(0))
            if token := await self._take_from(self._theirs[-1], preferred=0):
                return token
        return None

    async def wait(self, most_ms: float = BLOCK_MS) -> list[Token]:
        """Until one of our partitions has a new token; it is not taken yet."""
        self._watch_all()
        self._wake.clear()
        if not any(p.oldest() for p in self._mine.values()):
            with suppress(TimeoutError):
                async with asyncio.timeout(self.patience_ms(most_ms) / 1000):
                    await self._wake.wait()
        return []

    async def divide(self, peers: Peers) -> None:
        """Find out which partitions are ours, and watch them."""
        await super().divide(peers)
        mine = self._grouped(self._own)
        if {n: p.streams for n, p in mine.items()} != {n: p.streams for n, p in self._mine.items()}:
            await self.stop()
            self._mine = mine
            self._theirs = [p.streams for p in self._grouped(self._others).values()]
            self._watch_all()

    async def stop(self) -> None:
        await cancel(p.watcher for p in self._mine.values())
        for partition in self._mine.values():
            partition.watcher = None

    def _grouped(self, streams: Iterable[str]) -> dict[int, _Partition]:
        by_number: dict[int, list[str]] = defaultdict(list)
        for stream in streams:
            by_number[self._streams[stream][1]].append(stream)
        return {number: _Partition(each) for number, each in by_number.items()}

    def _watch_all(self) -> None:
        for number, partition in self._mine.items():
            if partition.watcher is None:
                partition.watcher = asyncio.create_task(self._watch(partition), name=f"partition {number}")

    async def _take_of(self, partition: _Partition) -> Token | None:
        # What is seen from here on may be newer than the answer.
        seen = {stream: ids[-1] for stream, ids in partition.seen.items() if ids}
        token = await self._take_from(partition.streams, preferred=len(partition.streams))
        partition.gone({token.ready: _id(token.id)} if token else seen)
        return token

    async def _take_from(self, streams: list[str], preferred: int) -> Token | None:
        reply = await self._clients.run("take", streams, [GROUP, self._consumer, preferred, STEAL_MS])
        return self._taken(streams, reply)

    async def _watch(self, partition: _Partition) -> None:
        last: dict[str, str] = {}
        while True:
            if not last:
                last = dict.fromkeys(partition.streams, "0-0")
                for ids in partition.seen.values():
                    ids.clear()
            try:
                new = await self._clients.peek(last, BLOCK_MS)
                self._note(partition, new)
                # From the beginning whenever nothing comes: numbers may go back when Redis was restored.
                last = last | {stream: ids[-1] for stream, ids in new.items()} if new else {}
            except ScribeError as error:
                log.info("partition_not_watched", error=str(error))
                partition.listed, last = False, {}
                await asyncio.sleep(_PAUSE_S)
            except Exception:
                # The top of the loop: without it this worker would not see its partition's tokens any more.
                log.exception("partition_watch_failed")
                partition.listed, last = False, {}
                await asyncio.sleep(_PAUSE_S)

    def _note(self, partition: _Partition, new: dict[str, list[str]]) -> None:
        for stream, ids in new.items():
            partition.seen[stream].extend(map(_id, ids))
        partition.listed = True
        if new:
            self._wake.set()


def _id(token: str) -> _Id:
    ms, _, seq = token.partition("-")
    return int(ms), int(seq)


def token_queue(clients: RedisClients, stages: Sequence[str], consumer: str) -> TokenQueue:
    """The queue for where Redis is."""
    return (ShardQueue if clients.cluster else TokenQueue)(clients, stages, consumer)
