"""Those who only read a session along, any number of them: as server-sent events, or by a WebSocket that takes nothing.

A viewer costs the workers nothing, and Redis one subscription for each session and gateway. What the channel brings
goes to all of a session's viewers as it is; each has its own place in it, and one that is too slow reads on from the
stream, so none holds up another or much memory (shared/transcripts.py).
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, suppress
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request, Response, WebSocket
from sse_starlette import EventSourceResponse
from starlette.requests import HTTPConnection
from starlette.websockets import WebSocketDisconnect

from gateway import refusal
from gateway.dialects.base import chosen_subprotocol
from gateway.dialects.native import Native
from gateway.gateway import Gateway
from gateway.sessions import is_session_id
from shared.errors import BadInput, NoSession, ScribeError
from shared.protocol import MAX_EVENT
from shared.tasks import cancel

_AFTER = Query(ge=0, le=MAX_EVENT, description="number of the last event that you have")


def viewer_routes(gateway: Gateway, refusals: dict[int | str, dict[str, Any]]) -> APIRouter:
    """`refusals`: of any request, for the API's description."""
    router = APIRouter()

    @router.get(
        "/v1/sessions/{session}/events",
        response_class=EventSourceResponse,
        responses=refusals
        | {
            204: {"description": "the session is over, and you have had its last event"},
            404: {"description": "no such session"},
            503: {"description": "Redis is away"},
        },
    )
    async def events(
        request: Request,
        session: str,
        after: Annotated[int, _AFTER] = 0,
        last_event_id: Annotated[int, Header(ge=0, le=MAX_EVENT)] = 0,
    ) -> Response:
        """A session's transcript events as server-sent events; `after` or `Last-Event-ID` resumes after that event.

        For the session's owner and for keys with scope `listen`. `?token=` is for browsers' EventSource.
        """
        # A browser that reconnects repeats the address, `after` and all, and says by header what it has had since.
        first, over = await _place(gateway, request, session, max(after, last_event_id))
        if over:
            return Response(status_code=204)  # how an EventSource is told not to come back
        return EventSourceResponse(_messages(gateway, session, first), ping=15)

    @router.websocket("/v1/sessions/{session}/stream")
    async def stream(socket: WebSocket, session: str) -> None:
        try:
            first, over = await _place(gateway, socket, session, _after(socket))
        except ScribeError as error:
            await refusal.refuse(socket, error, Native)
            return
        await socket.accept(chosen_subprotocol(socket, Native))
        if over:
            await socket.close(refusal.CLOSE_OK)
            return
        with gateway.viewed():
            await _show(gateway, socket, session, first)

    return router


def _after(socket: WebSocket) -> int:
    """Raises BadInput."""
    text = socket.query_params.get("after", "0")
    if not (text.isdecimal() and len(text) < 17 and int(text) <= MAX_EVENT):
        raise BadInput(f"after: the number of the last event that you have, got {text!r:.40}")
    return int(text)


async def _place(gateway: Gateway, client: HTTPConnection, session: str, after: int) -> tuple[int, bool]:
    """The number to begin after, and whether nothing is left to tell. Raises ScribeError."""
    principal = gateway.door.enter(client, None, in_query=True)
    if not (is_session_id(session) and await gateway.shows(session, principal)):
        raise NoSession(f"no session {session!r:.40}: it never existed, has expired or is not yours")
    newest, over = await gateway.newest(session)
    return min(after, newest), over and after >= newest


async def _messages(gateway: Gateway, session: str, after: int) -> AsyncIterator[bytes]:
    async for event in gateway.events(session, after):
        yield b"id: %d\r\nevent: transcript\r\ndata: %b\r\n\r\n" % (event.number, event.raw)


async def _show(gateway: Gateway, socket: WebSocket, session: str, after: int) -> None:
    """Until the last event, the viewer leaves or says something, or the gateway stops."""
    telling = asyncio.create_task(_tell(gateway, socket, session, after), name="viewer")
    hearing = asyncio.create_task(_hear(socket), name="viewer's silence")
    code = refusal.CLOSE_GOING_AWAY
    try:
        await asyncio.wait((telling, hearing), return_when=asyncio.FIRST_COMPLETED)
        code = _code(telling)
    finally:
        await cancel((telling, hearing))
        with suppress(RuntimeError, WebSocketDisconnect):  # the viewer was first
            await socket.close(code)


def _code(telling: asyncio.Task[None]) -> int:
    if not telling.done():
        return refusal.CLOSE_BAD_INPUT
    error = telling.exception()
    return refusal.close_code_of(error) if isinstance(error, ScribeError) else refusal.CLOSE_OK


async def _tell(gateway: Gateway, socket: WebSocket, session: str, after: int) -> None:
    with suppress(WebSocketDisconnect, RuntimeError):  # it has left
        async with aclosing(gateway.events(session, after)) as events:
            async for event in events:
                await socket.send_text(event.raw.decode())


async def _hear(socket: WebSocket) -> None:
    message = await socket.receive()
    if message["type"] != "websocket.disconnect":
        problem = refusal.problem_of(
            BadInput("this address only shows a session: send nothing here; audio goes to /v1/stream")
        )
        await socket.send_text(problem.model_dump_json(exclude_none=True))
