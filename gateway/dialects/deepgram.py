"""Deepgram's live `/v1/listen`, for clients of its SDKs (docs/dialects/deepgram.md)."""

import hashlib
import json
import uuid
from collections.abc import Sequence
from typing import Any

from starlette.requests import HTTPConnection
from starlette.responses import Response

from gateway.dialects import deepgram_shapes as shapes
from gateway.dialects.base import Audio, Begin, Dialect, Farewell, Reply, Said
from gateway.dialects.deepgram_channel import Channel
from gateway.dialects.deepgram_query import asked
from gateway.dialects.texts import as_reason, object_in
from gateway.refusal import problem_of
from shared.errors import BadInput, ScribeError, SessionOver, Silent
from shared.events import End, ErrorEvent, TranscriptEvent
from shared.protocol import EndOfAudio, Flush

_OK, _BAD_DATA, _INTERNAL = 1000, 1008, 1011
# What clients look for; it fits a close frame.
_IDLE = "Deepgram did not receive audio data or a text message within the timeout window. See https://dpgr.am/net0001"
# Keyterms have 500 tokens at most; other messages are shorter.
_MAX_TEXT = 16_384
_SCHEMA = (
    "a text message must be JSON of type KeepAlive, Finalize, CloseStream or Configure, with their fields"
)


class Deepgram(Dialect):
    """One connection to /v1/listen."""

    subprotocols = ("token", "bearer")
    idle_s = 10.0

    @classmethod
    def secret(cls, head: HTTPConnection) -> str | None:
        """A browser offers `token, KEY` or `bearer, JWT`."""
        offered = head.scope.get("subprotocols", ())
        return offered[1] if len(offered) > 1 and offered[0] in cls.subprotocols else None

    @classmethod
    def response(cls, error: ScribeError) -> Response:
        return shapes.refusal(error)

    def __init__(self, head: HTTPConnection) -> None:
        self._asked = asked(head.query_params)
        self._request = str(uuid.uuid4())
        self._created = shapes.now()
        self._heard = hashlib.sha256()
        self._closing = self._failed = False
        count = self._asked.transcripts
        self._channels = [Channel(self._asked, self._request, index) for index in range(count)]
        self._open = count

    def headers(self) -> Sequence[tuple[bytes, bytes]]:
        pairs = shapes.headers_of(self._request).items()
        return [(name.encode(), value.encode()) for name, value in pairs]

    def greet(self) -> Sequence[Said]:
        return (Begin(self._asked.options),)

    def hear(self, message: str | bytes) -> Sequence[Said]:
        if self._closing:
            return ()  # what crossed our results on the way; a late KeepAlive is usual
        if isinstance(message, str):
            return self._control(message)
        if not message:  # how the end was told before CloseStream
            return self._end()
        self._heard.update(message)
        return (Audio(message),)

    def tell(self, event: TranscriptEvent, channel: int) -> Sequence[str]:
        told = list(self._channels[channel].tell(event))
        if isinstance(event, End):
            self._open -= 1
            if self._open == 0:
                told.append(self._summary(event))
        if isinstance(event, ErrorEvent):
            self._failed = True
            told.append(shapes.error(event.code, event.message))
        return [_text(each) for each in told]

    def refuse(self, error: ScribeError) -> Sequence[str]:
        return (_text(shapes.error(error.code, problem_of(error).message)),)

    def close(self, error: ScribeError | None) -> Farewell:
        if error is None and not self._failed:
            return Farewell(_OK)
        if isinstance(error, Silent):
            return Farewell(_INTERNAL, _IDLE)
        if error and error.blame == "client":
            undecodable = isinstance(error, BadInput) and not isinstance(error, SessionOver)
            return Farewell(_BAD_DATA, as_reason(f"{'DATA-0000: ' * undecodable}{error}"))
        return Farewell(_INTERNAL, "NET-0000")

    def _control(self, text: str) -> Sequence[Said]:
        fields = (object_in(text) if len(text) <= _MAX_TEXT else None) or {}
        kind = fields.get("type")
        if kind == "KeepAlive":
            return ()
        if kind == "CloseStream":
            return self._end()
        if kind == "Finalize" and _is_channel(channel := fields.get("channel"), len(self._channels)):
            for each in self._channels:
                each.finalize()
            return (Flush(id="" if channel is None else str(channel)),)
        if kind == "Configure" and _is_configuration(fields):
            return (Reply(_text(self._configured(fields.get("keyterms")))),)
        return (Reply(_text({**shapes.error("SchemaError", _SCHEMA), "message": text[:1_000]})),)

    def _end(self) -> Sequence[Said]:
        self._closing = True
        return (EndOfAudio(),)

    def _configured(self, keyterms: list[str] | None) -> shapes.Shape:
        """Features change how text looks: accepted and ignored, as in the query. Keyterms would be relied on."""
        answer: shapes.Shape = {"type": "ConfigureSuccess", "request_id": self._request}
        if not keyterms:
            return answer if keyterms is None else {**answer, "keyterms": []}
        code, why = "CONFIGURE_KEYTERMS_NOT_SUPPORTED", "this fleet's model knows no keyterms"
        return {**answer, "type": "ConfigureFailure", "code": code, "description": why}

    def _summary(self, event: End) -> shapes.Shape:
        return {
            "type": "Metadata",
            "transaction_key": "deprecated",
            "request_id": self._request,
            "sha256": self._heard.hexdigest(),
            "created": self._created,
            "duration": shapes.seconds(event.audio_ms),
            "channels": self._asked.options.channels,
        }


def _text(shape: shapes.Shape) -> str:
    return json.dumps(shape, ensure_ascii=False)


def _is_channel(value: Any, channels: int) -> bool:
    return value is None or (type(value) is int and 0 <= value < channels)


def _is_configuration(fields: dict[str, Any]) -> bool:
    keyterms, features = fields.get("keyterms") or [], fields.get("features") or {}
    if not (isinstance(keyterms, list) and isinstance(features, dict)):
        return False
    return all(isinstance(each, str) for each in keyterms) and all(
        isinstance(each, bool) for each in features.values()
    )
