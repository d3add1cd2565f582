"""A session's way into Redis: its meta hash, its numbered chunks, and how far the fleet has got with them."""

import asyncio
import hashlib
import secrets
from dataclasses import dataclass

from shared import metrics
from shared.clock import mono_ms, wall_ms
from shared.errors import RedisUnavailable
from shared.keys import STAGES
from shared.protocol import SessionOptions
from shared.redis_client import RedisClients, translated

# How long a chunk is offered to a Redis that does not answer before the session is given up.
RETRY_S = 10.0


@dataclass(frozen=True, slots=True)
class Opened:
    session: str
    resume_token: str


async def open_session(clients: RedisClients, options: SessionOptions, owner: str) -> Opened:
    """Create a session. Its id is unguessable; of the resume token only a hash is stored."""
    opened = Opened(secrets.token_hex(16), secrets.token_urlsafe(24))
    meta = {
        "options": options.model_dump_json(),
        "status": "open",
        "owner": owner,
        "events": 0,
        "resume": hashlib.sha256(opened.resume_token.encode()).hexdigest(),
        "created_ms": int(wall_ms()),
    }
    key = clients.keys.meta(opened.session)
    with translated():
        pipe = clients.commands.pipeline(transaction=True)
        pipe.hset(key, mapping=meta)
        pipe.pexpire(key, clients.ttl_ms)
        await pipe.execute()
    return opened


class Ingest:
    """Appends a session's chunks and marks, in order, each exactly once."""

    def __init__(self, clients: RedisClients, session: str) -> None:
        self._clients = clients
        self._session = session
        self.seq = 0

    async def append(self, kind: str, payload: bytes, received_ms: float) -> None:
        """Append one entry that was complete at `received_ms` (Unix). The number makes a retry harmless. Raises RedisUnavailable, Overloaded, BadInput."""
        keys, sid = self._clients.keys, self._session
        names = [
            keys.inputs(sid, "frontend"),
            keys.state(sid, "frontend"),
            keys.ready_of(sid, "frontend"),
            keys.meta(sid),
        ]
        args = [self.seq + 1, kind, payload, sid, received_ms, wall_ms(), self._clients.ttl_ms]
        give_up = mono_ms() + RETRY_S * 1000
        while True:
            try:
                await self._clients.run("append", names, args)
                break
            except RedisUnavailable:
                if mono_ms() > give_up:
                    raise
                await asyncio.sleep(0.1)
        self.seq += 1
        metrics.CHUNKS.inc()

    async def backlog(self) -> int:
        """Chunks appended but not yet decoded, at the stage that is furthest behind."""
        pipe = self._clients.commands.pipeline(transaction=False)
        for stage in STAGES:
            pipe.hmget(self._clients.keys.state(self._session, stage), "seq", "fed")
        with translated():
            stages = [(int(seq or 0), int(fed or 0)) for seq, fed in await pipe.execute()]
        return self.seq - min([stages[0][0], *(seq for seq, fed in stages[1:] if seq < fed)])
