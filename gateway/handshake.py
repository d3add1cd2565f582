"""How a connection begins: what the client asks for, and the session it gets."""

import asyncio
import contextlib
from collections.abc import MutableMapping
from typing import Any

from starlette.websockets import WebSocket, WebSocketDisconnect

from gateway.messages import control_of, request_of
from gateway.place import restart_at
from gateway.sessions import Held, open_session, resume_session
from shared.protocol import Configure, Ready, Resume, SessionOptions
from shared.redis_client import RedisClients

# A client that gave no query and says nothing is taken to want the defaults.
CONFIGURE_S = 1.0

Message = MutableMapping[str, Any]


async def request_from(socket: WebSocket) -> tuple[SessionOptions | Resume, Message | None]:
    """From the query, or the first message; a first message that is neither is returned with the defaults."""
    if query := dict(socket.query_params):
        return request_of(query), None
    first: Message | None = None
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(CONFIGURE_S):
            first = await socket.receive()
    if first and first["type"] == "websocket.disconnect":
        raise WebSocketDisconnect(first.get("code", 1006))
    if first and first.get("text") is not None:
        message = control_of(first["text"])
        if isinstance(message, Configure):
            return SessionOptions(**message.model_dump(exclude={"type"})), None
        if isinstance(message, Resume):
            return message, None
    return SessionOptions(), first


async def session_for(
    clients: RedisClients, request: SessionOptions | Resume, wait_s: float, session: str, owner: str
) -> Held:
    """A new session under that id, or the old one of the same owner. Raises BadInput, RedisUnavailable, Overloaded."""
    if isinstance(request, Resume):
        return await resume_session(clients, request, wait_s, owner)
    return await open_session(clients, request, wait_s, session, owner)


def ready(held: Held) -> Ready:
    """The first message: where the client is to begin, or to go on."""
    options = held.options
    return Ready(
        session=held.session,
        resume_token=held.resume_token,
        chunk_ms=options.chunk_ms,
        sample_rate=options.sample_rate,
        encoding=options.encoding,
        resumed=held.resumed,
        next_chunk=held.fed + 1,
        next_sample=restart_at(held.place, options.sample_rate).sample,
        flushes=held.place.flushes,
        ended=held.over,
    )
