"""The gateway's routes. Liveness never asks Redis: a Redis outage must not restart the fleet."""

import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from functools import partial
from typing import Annotated, Any

from fastapi import FastAPI, Header, HTTPException, Request, Response, WebSocket
from fastapi.middleware.cors import CORSMiddleware
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.responses import PlainTextResponse

from gateway import refusal
from gateway.dialects.base import Dialect
from gateway.dialects.deepgram import Deepgram
from gateway.dialects.deepgram_files import deepgram_routes
from gateway.dialects.funasr import FunAsr
from gateway.dialects.native import Native
from gateway.dialects.openai_files import openai_routes
from gateway.dialects.openai_realtime import OpenAIRealtime
from gateway.dialects.root import Root
from gateway.dialects.vosk import Vosk
from gateway.gateway import Gateway
from gateway.recorded import transcribe
from gateway.server import BoundedHeads
from gateway.web import add_pages
from shared.access import Principal
from shared.errors import ScribeError
from shared.events import TranscriptEvent
from shared.protocol import MAX_EVENT, SessionOptions

# What is spoken where.
DIALECTS: dict[str, type[Dialect]] = {
    "/v1/stream": Native,
    "/v1/listen": Deepgram,
    "/v1/realtime": OpenAIRealtime,
    "/": Root,
    "/vosk": Vosk,
    "/funasr": FunAsr,
}

# As gateway/sessions.py makes them.
SESSION = re.compile(r"[0-9a-f]{32}")

_REFUSALS: dict[int | str, dict[str, Any]] = {
    401: {"description": "no valid credentials"},
    403: {"description": "not allowed"},
}


def create_app(gateway: Gateway) -> FastAPI:
    """The ASGI application around a gateway. Stopping the gateway is the caller's business."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await gateway.start()
        yield

    app = FastAPI(title="StreamScribe", version="1", lifespan=lifespan, docs_url=None, redoc_url=None)
    if gateway.door.origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=sorted(gateway.door.origins),
            allow_headers=["Authorization", "Last-Event-ID"],
        )
    app.add_middleware(BoundedHeads)
    app.add_exception_handler(ScribeError, _refused)
    _health(app, gateway)
    _dialects(app, gateway)
    _sessions(app, gateway)
    add_pages(app, gateway)
    return app


def _health(app: FastAPI, gateway: Gateway) -> None:
    @app.get("/healthz")
    async def healthz() -> dict[str, str]:
        """The event loop turns."""
        return {"status": "alive"}

    @app.get("/readyz", responses={503: {"description": "draining, or Redis does not take writes"}})
    async def readyz(response: Response) -> dict[str, str]:
        """New sessions are welcome: Redis takes writes, and this gateway is not draining."""
        problem = await gateway.problem()
        if problem:
            response.status_code = 503
        return {"status": problem or "ready"}

    @app.get("/metrics", response_class=PlainTextResponse, responses=_REFUSALS)
    async def metrics_page(request: Request) -> Response:
        """Prometheus text format. Beyond loopback for scope `listen` only, unless SCRIBE_AUTH_OPEN_METRICS."""
        gateway.door.may_see_metrics(request)
        return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)


def _dialects(app: FastAPI, gateway: Gateway) -> None:
    def route(path: str, dialect: type[Dialect]) -> None:
        @app.websocket(path)
        async def talk(socket: WebSocket) -> None:
            await gateway.serve(socket, dialect)

    for path, dialect in DIALECTS.items():
        route(path, dialect)
    _recordings(app, gateway)


def _recordings(app: FastAPI, gateway: Gateway) -> None:
    def enter(dialect: type[Dialect]) -> Callable[[Request], Principal]:
        return lambda request: gateway.door.enter(request, "transcribe", secret=dialect.secret(request))

    async def events(
        request: Request, pieces: AsyncIterator[bytes], options: SessionOptions
    ) -> AsyncGenerator[TranscriptEvent, None]:
        async with aclosing(transcribe(gateway, request, pieces, options, dialect=OpenAIRealtime)) as told:
            async for _, event in told:
                yield event

    app.include_router(deepgram_routes(enter(Deepgram), partial(transcribe, gateway, dialect=Deepgram)))
    app.include_router(openai_routes(enter(OpenAIRealtime), events))


def _sessions(app: FastAPI, gateway: Gateway) -> None:
    @app.get(
        "/v1/sessions/{session}/events",
        response_class=EventSourceResponse,
        responses=_REFUSALS
        | {
            204: {"description": "the session is over, and you have had its last event"},
            404: {"description": "no such session"},
            503: {"description": "Redis is away"},
        },
    )
    async def events(
        request: Request, session: str, last_event_id: Annotated[int, Header(ge=0, le=MAX_EVENT)] = 0
    ) -> Response:
        """A session's transcript events as server-sent events; `Last-Event-ID` resumes after that event.

        For the session's owner and for keys with scope `listen`. `?token=` is for browsers' EventSource.
        """
        principal = gateway.door.enter(request, None, in_query=True)
        if not (SESSION.fullmatch(session) and await gateway.shows(session, principal)):
            raise HTTPException(
                404, f"no session {session!r:.40}: it never existed, has expired or is not yours"
            )
        newest, over = await gateway.newest(session)
        if over and last_event_id >= newest:
            return Response(status_code=204)  # how an EventSource is told not to come back
        return EventSourceResponse(_stream(request, gateway, session, min(last_event_id, newest)), ping=15)


async def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, ScribeError)
    refusal.note(error)
    return refusal.response_of(error)


async def _stream(
    request: Request, gateway: Gateway, session: str, after: int
) -> AsyncIterator[ServerSentEvent]:
    async for event in gateway.events(session, after):
        yield ServerSentEvent(event.raw.decode(), event="transcript", id=str(event.number))
        if await request.is_disconnected():
            return
