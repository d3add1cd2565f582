"""Deepgram's `POST /v1/listen`: a recording as the body, its transcript as the answer."""

import hashlib
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing

from fastapi import APIRouter, Request, Response
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse

from gateway import refusal
from gateway.dialects import deepgram_shapes as shapes
from gateway.dialects.deepgram_query import asked_of_recording
from gateway.dialects.deepgram_recorded import transcript
from shared.access import Principal
from shared.errors import BadInput, ScribeError, StageFailed
from shared.events import End, ErrorEvent, Final, TranscriptEvent
from shared.protocol import SessionOptions

# Who is behind a request. Raises Unauthorized, Forbidden.
Enter = Callable[[Request], Principal]
# A recording's bytes through the fleet: events with their channels, up to each one's `end` or an `error`. Raises ScribeError.
Transcribe = Callable[
    [Request, AsyncIterator[bytes], SessionOptions], AsyncGenerator[tuple[int, TranscriptEvent], None]
]

# As far as the channels of a WAV file's header.
_HEAD_BYTES = 24


def deepgram_routes(enter: Enter, transcribe: Transcribe) -> APIRouter:
    router = APIRouter(include_in_schema=False)  # theirs is the description

    @router.post("/v1/listen", response_class=JSONResponse)
    async def listen(request: Request) -> Response:
        """Deepgram's endpoint for recordings (docs/dialects/deepgram.md)."""
        try:
            enter(request)  # before anything is read
            return await _answer(request, transcribe)
        except ScribeError as error:
            refusal.note(error)
            return shapes.refusal(error)

    return router


class _Body:
    """What is sent, hashed as it is read."""

    def __init__(self, request: Request) -> None:
        self._stream = request.stream()
        self._head = b""
        self.hash = hashlib.sha256()

    async def head(self) -> bytes:
        """Its first bytes; they are read again later. Raises BadInput if there are none."""
        while len(self._head) < _HEAD_BYTES and (piece := await self._next()):
            self._head += piece
        if not self._head:
            raise BadInput("the body is empty: send the recording as the body")
        return self._head

    async def pieces(self) -> AsyncIterator[bytes]:
        piece, self._head = self._head, b""
        while piece:
            self.hash.update(piece)
            yield piece
            piece = await self._next()

    async def _next(self) -> bytes:
        try:
            async for piece in self._stream:
                if piece:
                    return piece
        except ClientDisconnect as error:
            raise BadInput("the client left before its recording was whole") from error
        return b""


async def _answer(request: Request, transcribe: Transcribe) -> Response:
    created, request_id = shapes.now(), str(uuid.uuid4())
    if request.headers.get("content-type", "").startswith("application/json"):
        raise BadInput(
            "url: nothing is fetched here; send the recording itself as the body, with its type or none"
        )
    body = _Body(request)
    asked = asked_of_recording(request.query_params, _wav_channels(await body.head()))
    finals: list[list[Final]] = [[] for _ in range(asked.transcripts)]
    duration_ms = 0
    async with aclosing(transcribe(request, body.pieces(), asked.options)) as events:
        async for channel, event in events:
            if isinstance(event, Final):
                finals[channel].append(event)
            elif isinstance(event, End):
                duration_ms = max(duration_ms, event.audio_ms)
            elif isinstance(event, ErrorEvent):
                raise StageFailed(event.message)
    known = {"request_id": request_id, "created": created, "sha256": body.hash.hexdigest()}
    answer = transcript(asked, finals, **known, duration_ms=duration_ms)
    return JSONResponse(answer, headers=shapes.headers_of(request_id))


def _wav_channels(head: bytes) -> int | None:
    """Where the format comes first, as it mostly does."""
    is_wav = head[:4] == b"RIFF" and head[8:16] == b"WAVEfmt "
    return int.from_bytes(head[22:24], "little") if is_wav else None
