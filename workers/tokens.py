"""Work tokens: taking, reclaiming and ending them (design section 4).

At most one token exists per session and stage, so whoever holds it works alone on that session, in order.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from shared.clock import wall_ms
from shared.redis_client import BLOCK_MS, GROUP, RedisClients, translated


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
        # Later stages first: work that is nearly done frees more than work that is begun.
        self._streams = {
            keys.ready(partition, stage): (stage, partition)
            for partition in range(keys.partitions)
            for stage in reversed(stages)
        }
        self._order = deque(self._streams)
        self._cursors = dict.fromkeys(self._streams, "0-0")

    async def take(self) -> Token | None:
        """One token if any is waiting. The search starts one stream further each time, so none is preferred."""
        self._order.rotate(-1)
        reply = await self._clients.run("take", list(self._order), [GROUP, self._consumer])
        if not reply:
            return None
        index, token, fields = reply
        return self._token(self._order[index - 1], token, dict(zip(fields[::2], fields[1::2], strict=True)))

    async def wait(self) -> list[Token]:
        """Block up to a second for tokens; when several arrive at once there may be one per stream."""
        with translated():
            reply = await self._clients.blocking.xreadgroup(
                GROUP, self._consumer, dict.fromkeys(self._streams, ">"), count=1, block=BLOCK_MS
            )
        return list(self._tokens(reply.items()))

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
