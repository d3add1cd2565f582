"""Work tokens: taking, taking over and ending them (design section 4).

At most one token exists per session and stage, so whoever holds it works alone on that session, in order.

A session's passes are cheaper where its last one was: state and encoder output are still in memory. So workers divide
the partitions among themselves, by rendezvous hashing (Thaler and Ravishankar 1996) over the heartbeats: each waits
only for tokens of its own partitions, and looks for those that others have no time for whenever it has none.

A token counts its failures, and a session is given up when there are too many. A failure is a pass that raised an
error, or one that had begun (load.lua marks it) when its worker fell silent. What Redis could not do is none: whoever
holds a token through an outage keeps it, and one that was taken but not begun goes back as it was.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shared.clock import wall_ms
from shared.redis_client import BLOCK_MS, GROUP, RedisClients, translated
from workers.peers import Peers

# How long a worker waits for its own work before it looks for that of others.
STEAL_MS = 50


def owner(workers: Iterable[str], partition: int) -> str:
    """Who of them has this partition. When one leaves, only its own partitions move."""
    return max(workers, key=lambda name: hashlib.blake2b(f"{partition}:{name}".encode()).digest())


@dataclass(frozen=True, slots=True)
class Token:
    id: str
    ready: str  # the ready stream it is in
    stage: str
    partition: int
    session: str
    failures: int = 0
    waited_ms: float = 0.0  # until it was taken


class TokenQueue:
    """The ready streams of some stages, as one consumer sees them."""

    def __init__(self, clients: RedisClients, stages: Sequence[str], consumer: str) -> None:
        self._clients = clients
        self._consumer = consumer
        keys = clients.keys
        self._stages = stages
        self._streams = {
            keys.ready(partition, stage): (stage, partition)
            for partition in range(keys.partitions)
            for stage in stages
        }
        self._own = list(self._streams)
        self._others: list[str] = []

    @property
    def shares(self) -> bool:
        """Whether some partitions are those of others."""
        return bool(self._others)

    def patience_ms(self, most_ms: float) -> int:
        """How long `wait` waits: not at all would be for ever."""
        return max(1, min(STEAL_MS if self.shares else BLOCK_MS, int(most_ms)))

    async def stop(self) -> None:
        """End what watches the streams."""

    async def take(self) -> Token | None:
        """The token that has waited longest, of our own streams if they have any."""
        order = [*self._own, *self._others]
        reply = await self._clients.run("take", order, [GROUP, self._consumer, len(self._own), 0])
        return self._taken(order, reply)

    async def wait(self, most_ms: float = BLOCK_MS) -> list[Token]:
        """Block for tokens of our own, for a short time if there are others; several at once, one for each stream."""
        streams = self._own or self._others
        with translated():
            reply = await self._clients.blocking.xreadgroup(
                GROUP, self._consumer, dict.fromkeys(streams, ">"), count=1, block=self.patience_ms(most_ms)
            )
        return [
            self._token(stream.decode(), token, fields)
            for stream, entries in reply.items()
            for token, fields in entries
        ]

    async def divide(self, peers: Peers) -> None:
        """Find out which partitions are ours."""
        live = {stage: [*await peers.live(stage), self._consumer] for stage in self._stages}
        own = {
            stream
            for stream, (stage, partition) in self._streams.items()
            if owner(live[stage], partition) == self._consumer
        }
        if own != set(self._own):
            self._own = [stream for stream in self._streams if stream in own]
            self._others = [stream for stream in self._streams if stream not in own]

    async def mine(self) -> list[Token]:
        """Tokens given to us, those in replies that never arrived included."""
        return [token for token, _ in await self._pending(consumername=self._consumer)]

    async def silent(self, idle_ms: int) -> list[tuple[Token, bool]]:
        """Tokens whose owner has been silent for so long, each with whether its pass had begun."""
        return [(token, deliveries > 1) for token, deliveries in await self._pending(idle=idle_ms)]

    async def hand_back(
        self, token: Token, *, failures: int | None = None, idle_ms: int | None = None
    ) -> int:
        """Give it to whoever is free, under a new number. The same for `idle`, `bury`: what settle.lua returns.

        `failures`: its count from now on, if that has changed. `idle_ms`: only if its owner was silent for so long.
        """
        return await self._settle(token, "again", token.failures if failures is None else failures, idle_ms)

    async def idle(self, token: Token, seen: int) -> int:
        """Nothing is left to do after input number `seen`."""
        return await self._settle(token, "idle", seen)

    async def bury(self, token: Token, reason: str) -> int:
        """Make it a dead letter."""
        return await self._settle(token, "dead", reason)

    async def forget(self, idle_ms: int, *, leaving: bool = False) -> None:
        """Delete consumers that were silent for so long; with `leaving`, ourselves too."""
        for stream in self._streams:
            await self._clients.run("forget", [stream], [GROUP, self._consumer if leaving else "", idle_ms])

    async def _settle(self, token: Token, outcome: str, what: int | str, idle_ms: int | None = None) -> int:
        keys = self._clients.keys
        names = [token.ready, keys.state(token.session, token.stage), keys.dead(token.partition)]
        args = [GROUP, token.id, token.session, wall_ms(), self._clients.ttl_ms, outcome, what]
        return int(await self._clients.run("settle", names, [*args, "" if idle_ms is None else idle_ms]))

    async def _pending(self, **which: Any) -> list[tuple[Token, int]]:
        """Tokens that were taken and not ended, with how often they were delivered."""
        pipe = self._clients.commands.pipeline(transaction=False)
        for stream in self._streams:
            pipe.xpending_range(stream, GROUP, "-", "+", 100, **which)
        with translated():
            pending = zip(self._streams, await pipe.execute(), strict=True)
            found = [(stream, entry) for stream, entries in pending for entry in entries]
            read = [await self._read(stream, entry) for stream, entry in found]
        return [each for each in read if each]

    async def _read(self, stream: str, entry: Mapping[str, Any]) -> tuple[Token, int] | None:
        token = entry["message_id"]
        there = await self._clients.commands.xrange(stream, token, token)
        if not there:  # ended meanwhile, or its entry was deleted by somebody
            await self._clients.commands.xack(stream, GROUP, token)
            return None
        return self._token(stream, token, there[0][1]), entry["times_delivered"]

    def _taken(self, streams: Sequence[str], reply: Any) -> Token | None:
        """What take.lua gave."""
        if not reply:
            return None
        index, token, fields, waited = reply
        named = dict(zip(fields[::2], fields[1::2], strict=True))
        return self._token(streams[index - 1], token, named, waited)

    def _token(self, stream: str, token: bytes, fields: Mapping[bytes, bytes], waited: float = 0.0) -> Token:
        stage, partition = self._streams[stream]
        session, failures = fields[b"s"].decode(), int(fields.get(b"f", 0))
        return Token(token.decode(), stream, stage, partition, session, failures, waited)
