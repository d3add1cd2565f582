"""Work tokens: taking, reclaiming and ending them (design section 4).

At most one token exists per session and stage, so whoever holds it works alone on that session, in order.

A session's passes are cheaper where its last one was: state and encoder output are still in memory. So workers divide
the partitions among themselves, by rendezvous hashing (Thaler and Ravishankar 1996) over the heartbeats: each waits
only for tokens of its own partitions, and looks for those that others have no time for whenever it has none.
"""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from shared.clock import wall_ms
from shared.redis_client import BLOCK_MS, GROUP, RedisClients, translated

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
    created_ms: float  # Unix time


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
        self._cursors = dict.fromkeys(self._streams, "0-0")

    @property
    def shares(self) -> bool:
        """Whether some partitions are those of others."""
        return bool(self._others)

    async def take(self) -> Token | None:
        """The token that has waited longest, of our own streams if they have any."""
        order = [*self._own, *self._others]
        reply = await self._clients.run("take", order, [GROUP, self._consumer, len(self._own)])
        if not reply:
            return None
        index, token, fields = reply
        return self._token(order[index - 1], token, dict(zip(fields[::2], fields[1::2], strict=True)))

    async def wait(self) -> list[Token]:
        """Block for tokens of our own, for a short time if there are others; several at once, one for each stream."""
        streams, patience = self._own or self._others, STEAL_MS if self.shares else BLOCK_MS
        with translated():
            reply = await self._clients.blocking.xreadgroup(
                GROUP, self._consumer, dict.fromkeys(streams, ">"), count=1, block=patience
            )
        return list(self._tokens(reply.items()))

    async def divide(self, silent_ms: float) -> None:
        """Find out which partitions are ours, of the workers that were heard of in so many milliseconds."""
        pipe = self._clients.commands.pipeline(transaction=False)
        for stage in self._stages:
            pipe.hgetall(self._clients.keys.workers(stage))
        with translated():
            beats = dict(zip(self._stages, await pipe.execute(), strict=True))
        since = wall_ms() - silent_ms
        live = {
            stage: [name.decode() for name, beat in found.items() if json.loads(beat)["seen_ms"] > since]
            for stage, found in beats.items()
        }
        own = {
            stream
            for stream, (stage, partition) in self._streams.items()
            if owner([*live[stage], self._consumer], partition) == self._consumer
        }
        if own != set(self._own):
            self._own = [stream for stream in self._streams if stream in own]
            self._others = [stream for stream in self._streams if stream not in own]

    async def mine(self) -> list[Token]:
        """Tokens given to us in a reply that never arrived: read after an error, before anything new."""
        with translated():
            reply = await self._clients.commands.xreadgroup(
                GROUP, self._consumer, dict.fromkeys(self._streams, "0"), count=100
            )
        return list(self._tokens(reply.items()))

    async def reclaim(self, idle_ms: int) -> list[tuple[Token, int]]:
        """Tokens whose owner has been silent for `idle_ms`, now ours, each with its number of deliveries."""
        claimed: list[Token] = []
        pipe = self._clients.commands.pipeline(transaction=False)
        for stream, cursor in self._cursors.items():
            pipe.xautoclaim(stream, GROUP, self._consumer, idle_ms, cursor, count=1)
        with translated():
            replies = await pipe.execute()
        for stream, (cursor, entries, *_) in zip(self._cursors, replies, strict=True):
            self._cursors[stream] = cursor.decode()
            claimed += self._tokens([(stream.encode(), entries)])
        return [(token, await self._deliveries(token)) for token in claimed]

    async def settle(self, token: Token, reason: str = "") -> None:
        """End a token without a pass: hand it back for a peer, or with a reason make it a dead letter."""
        keys = self._clients.keys
        await self._clients.run(
            "settle",
            [token.ready, keys.state(token.session, token.stage), keys.dead(token.partition)],
            [GROUP, token.id, token.session, wall_ms(), reason, self._clients.ttl_ms],
        )

    async def _deliveries(self, token: Token) -> int:
        with translated():
            pending = await self._clients.commands.xpending_range(token.ready, GROUP, token.id, token.id, 1)
        return int(pending[0]["times_delivered"]) if pending else 0

    def _tokens(self, streams: Iterable[tuple[bytes, Any]]) -> Iterable[Token]:
        for stream, entries in streams:
            for token, fields in entries:
                if fields:  # an entry deleted while pending has none
                    yield self._token(stream.decode(), token, fields)

    def _token(self, stream: str, token: bytes, fields: dict[bytes, bytes]) -> Token:
        stage, partition = self._streams[stream]
        return Token(token.decode(), stream, stage, partition, fields[b"s"].decode(), float(fields[b"t"]))
