"""The gateway's routes. Liveness never asks Redis: a Redis outage must not restart the fleet."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from functools import partial
from typing import Any

from fastapi import FastAPI, Request, Response, WebSocket
from fastapi.middleware.cors import CORSMiddleware
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
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
from gateway.viewers import viewer_routes
from gateway.web import add_pages
from shared.access import Principal
from shared.errors import ScribeError
from shared.events import TranscriptEvent
from shared.protocol import SessionOptions

# What is spoken where.
DIALECTS: dict[str, type[Dialect]] = {
    "/v1/stream": Native,
    "/v1/listen": Deepgram,
    "/v1/realtime": OpenAIRealtime,
    "/": Root,
    "/vosk": Vosk,
    "/funasr": FunAsr,
}

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
    app.include_router(viewer_routes(gateway, _REFUSALS))
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


async def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, ScribeError)
    refusal.note(error)
    return refusal.response_of(error)
