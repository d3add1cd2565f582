"""OpenAI's HTTP: a file in, its transcript out; and the list of models, which its clients ask for."""

import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AsyncExitStack, aclosing
from typing import Any

from fastapi import APIRouter, HTTPException, Request, Response
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.datastructures import FormData, UploadFile
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, PlainTextResponse

from gateway import refusal
from gateway.dialects import openai_errors
from gateway.dialects.openai_answers import BadField, Fields, Wanted, rendered
from gateway.dialects.openai_items import Item
from shared.access import Principal
from shared.errors import BadInput, ScribeError, StageFailed
from shared.events import End, ErrorEvent, Final, Partial, TranscriptEvent
from shared.protocol import SessionOptions

MODEL = "streamscribe"

# As OpenAI's own clients expect it at least; an hour of 16 kHz speech has 115 MB as WAV.
LARGEST_BYTES = 128 << 20
_READ_BYTES = 64 << 10
_FIELDS = 64

# Who is behind a request. Raises Unauthorized, Forbidden.
Enter = Callable[[Request], Principal]
# A file's bytes through the fleet, up to `end` or `error`. Raises ScribeError, at the first event or later.
Events = AsyncGenerator[TranscriptEvent, None]
Transcribe = Callable[[Request, AsyncIterator[bytes], SessionOptions], Events]


def openai_routes(enter: Enter, transcribe: Transcribe) -> APIRouter:
    router = APIRouter(include_in_schema=False)  # theirs is the description

    @router.post("/v1/audio/transcriptions", response_class=JSONResponse)
    async def transcriptions(request: Request) -> Response:
        """OpenAI's endpoint for files (docs/dialects/openai.md)."""
        try:
            return await _answer(_Bounded(request.scope, request.receive), enter, transcribe)
        except ScribeError as error:
            refusal.note(error)
            return openai_errors.response(error)

    @router.get("/v1/models", response_class=JSONResponse)
    async def models(request: Request) -> Response:
        """The one there is."""
        return _known(request, enter, {"object": "list", "data": [_model(MODEL)]})

    @router.get("/v1/models/{name:path}", response_class=JSONResponse)
    async def model(request: Request, name: str) -> Response:
        """Any name is taken for ours."""
        return _known(request, enter, _model(name))

    return router


class _Bounded(Request):
    """A request whose body has an end."""

    async def stream(self) -> AsyncGenerator[bytes, None]:
        read = 0
        async for piece in super().stream():
            read += len(piece)
            if read > LARGEST_BYTES:
                raise BadField("file", f"it is too large: {LARGEST_BYTES >> 20} MiB are read at most")
            yield piece


async def _answer(request: Request, enter: Enter, transcribe: Transcribe) -> Response:
    enter(request)  # before its file is read
    async with AsyncExitStack() as stack:
        form = await _form(request, stack)
        file, fields = form.get("file"), _fields(form)
        wanted = Wanted.of(fields)
        if not isinstance(file, UploadFile):
            raise BadField("file", "an audio file is wanted, as multipart/form-data")
        if not file.size:
            raise BadField("file", "it is empty")
        options = SessionOptions(encoding="container", partials=wanted.stream)
        source = await stack.enter_async_context(aclosing(transcribe(request, _pieces(file), options)))
        events = await stack.enter_async_context(aclosing(_to_its_end(source)))
        if wanted.stream:
            # What is wrong with a file mostly shows at its first event, while there is still an HTTP status to give.
            first = await anext(events)
            return EventSourceResponse(_sse(first, events, stack.pop_all()), ping=15)
        body = rendered(wanted, *await _whole(events))
    return PlainTextResponse(body) if isinstance(body, str) else JSONResponse(body)


async def _form(request: Request, stack: AsyncExitStack) -> FormData:
    """Beyond its first megabyte a file lies on disk, as long as the stack is open. Raises BadInput."""
    try:
        return await stack.enter_async_context(request.form(max_files=1, max_fields=_FIELDS))
    except HTTPException as error:
        raise BadInput(f"the form can't be read: {error.detail}") from error
    except ClientDisconnect as error:
        raise BadInput("the client left before its file was whole") from error


def _fields(form: FormData) -> Fields:
    fields: Fields = {}
    for name, value in form.multi_items():
        if isinstance(value, str):
            fields.setdefault(name, []).append(value)
    return fields


async def _pieces(file: UploadFile) -> AsyncIterator[bytes]:
    while piece := await file.read(_READ_BYTES):
        yield piece


async def _to_its_end(events: Events) -> Events:
    """Raises StageFailed where there is none."""
    async for event in events:
        if isinstance(event, ErrorEvent):
            raise StageFailed(event.message)
        yield event
        if isinstance(event, End):
            return
    raise StageFailed("the transcript ended early")


async def _whole(events: Events) -> tuple[list[Final], int]:
    finals, audio_ms = [], 0
    async for event in events:
        if isinstance(event, Final):
            finals.append(event)
        elif isinstance(event, End):
            audio_ms = event.audio_ms
    return finals, audio_ms


async def _sse(first: TranscriptEvent, rest: Events, stack: AsyncExitStack) -> AsyncIterator[ServerSentEvent]:
    said = Item("")
    try:
        async with stack:
            if delta := _delta(said, first):
                yield _message({"type": "transcript.text.delta", "delta": delta})
            async for event in rest:
                if delta := _delta(said, event):
                    yield _message({"type": "transcript.text.delta", "delta": delta})
        yield _message({"type": "transcript.text.done", "text": said.text})
        yield ServerSentEvent("[DONE]")
    except ScribeError as error:
        refusal.note(error)
        yield _message({"error": openai_errors.body_of(error)})


def _delta(said: Item, event: TranscriptEvent) -> str:
    """What is certain now and was not before."""
    match event:
        case Partial():
            return said.extend(event.text[: event.stable])
        case Final():
            return said.extend(event.text, last=True)
    return ""


def _message(fields: dict[str, Any]) -> ServerSentEvent:
    return ServerSentEvent(json.dumps(fields))


def _known(request: Request, enter: Enter, body: dict[str, Any]) -> Response:
    try:
        enter(request)
    except ScribeError as error:
        refusal.note(error)
        return openai_errors.response(error)
    return JSONResponse(body)


def _model(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": MODEL}
