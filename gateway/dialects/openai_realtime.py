"""OpenAI's Realtime protocol for transcription sessions, in its GA and its beta shape (docs/dialects/openai.md)."""

import base64
import json
import secrets
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

from pydantic import ValidationError
from starlette.requests import HTTPConnection
from starlette.responses import Response

from gateway.dialects import openai_errors
from gateway.dialects.base import Audio, Begin, Dialect, Farewell, Reply, Said
from gateway.dialects.openai_items import Items
from gateway.dialects.openai_session import LOGPROBS, SessionSettings, deviations, explain
from gateway.dialects.texts import object_in
from gateway.pcm import SAMPLE_WIDTH
from gateway.refusal import close_code_of
from shared.errors import ScribeError
from shared.events import ErrorEvent, TranscriptEvent
from shared.protocol import Flush

_KEY = "openai-insecure-api-key."
_BETA_PROTOCOL = "openai-beta.realtime-v1"
# OpenAI takes no less for an item.
_LEAST_MS = 100
# Clients send audio while their settings are still on the way (Pipecat 1.14). The core would wait for 320 ms anyway.
_PATIENCE_MS = 200
_MAX_EVENT_ID = 512

Json = dict[str, Any]


class OpenAIRealtime(Dialect):
    """The core's session begins with the first audio: what decides how it is heard may change until then."""

    subprotocols = ("realtime",)
    # Push-to-talk clients say nothing between turns, and the protocol has no ping.
    idle_s = 600.0

    @classmethod
    def secret(cls, head: HTTPConnection) -> str | None:
        offered = (str(each) for each in head.scope.get("subprotocols", ()))
        return next((each.removeprefix(_KEY) for each in offered if each.startswith(_KEY)), None)

    @classmethod
    def response(cls, error: ScribeError) -> Response:
        # Pages are told in a message instead, which has a type and an id.
        return openai_errors.response(error, type="error", event_id=f"event_{secrets.token_hex(8)}")

    def __init__(self, head: HTTPConnection) -> None:
        protocols = head.scope.get("subprotocols", ())
        self._beta = (
            "realtime=v1" in head.headers.get("openai-beta", "").lower() or _BETA_PROTOCOL in protocols
        )
        self._base = secrets.token_hex(8)
        self._events, self._item_ids = count(1), count(1)
        self._bytes = 0  # of audio that the core was given
        self._early = b""  # audio before the core's session
        self._settings = SessionSettings()
        if model := head.query_params.get("model"):
            named = {"audio": {"input": {"transcription": {"model": model[:200]}}}}
            self._settings = self._settings.changed(named, beta=False)
        self._items: Items | None = None  # until the first audio
        self._handlers: dict[str, Callable[[Json], Sequence[Said]]] = {
            "session.update": self._update,
            "transcription_session.update": self._update,
            "input_audio_buffer.append": self._append,
            "input_audio_buffer.commit": self._commit,
            "input_audio_buffer.clear": self._clear,
        }

    def greet(self) -> Sequence[Said]:
        kind = "transcription_session" if self._beta else "session"
        return (self._reply({"type": f"{kind}.created", "session": self._session(beta=self._beta)}),)

    def hear(self, message: str | bytes) -> Sequence[Said]:
        event = object_in(message) if isinstance(message, str) else None
        if event is None:
            return self._wrong({}, "send JSON objects in text frames", code="invalid_json")
        if handler := self._handlers.get(str(event.get("type"))):
            return handler(event)
        known = ", ".join(self._handlers)
        return self._wrong(
            event,
            f"unknown event type {event.get('type')!r:.80} in a transcription session; known are {known}",
            code="invalid_value",
            param="type",
        )

    def tell(self, event: TranscriptEvent, channel: int) -> Sequence[str]:  # noqa: ARG002 - always mono
        if isinstance(event, ErrorEvent):
            failure = openai_errors.body(event.message, kind="server_error", code=event.code)
            return (self._dump({"type": "error", "error": failure}),)
        return [self._dump(each) for each in self._items.tell(event)] if self._items else ()

    def refuse(self, error: ScribeError) -> Sequence[str]:
        return (self._dump({"type": "error", "error": openai_errors.body_of(error)}),)

    def close(self, error: ScribeError | None) -> Farewell:
        return Farewell(close_code_of(error) if error else 1000)

    def _update(self, event: Json) -> Sequence[Said]:
        beta = self._beta or event["type"] == "transcription_session.update"
        asked = event.get("session")
        if not isinstance(asked, dict):
            return self._wrong(event, "session: an object is wanted", code="invalid_value", param="session")
        try:
            settings = self._settings.changed(asked, beta=beta)
        except ValidationError as error:
            param, why = explain(error, beta=beta)
            return self._wrong(event, why, code="invalid_value", param=param)
        if self._items and settings.options != self._settings.options:
            why = "the audio's format, noise reduction and silence_duration_ms are fixed with the first audio: open a new session"
            return self._wrong(event, why, code="session_begun", param="session")
        self._settings = settings
        self._apply()
        session = self._session(beta=beta)
        # An `error` would be the end for some clients; and this is none.
        notes = list(deviations(asked, session))
        updated = {"type": f"{event['type']}d", "session": session | ({"notes": notes} if notes else {})}
        return (self._reply(updated),)

    def _append(self, event: Json) -> Sequence[Said]:
        try:
            audio = base64.b64decode(event["audio"], validate=True)
        except (KeyError, TypeError, ValueError):
            return self._wrong(event, "audio: base64 is wanted", code="invalid_value", param="audio")
        if self._items:
            self._bytes += len(audio)
            return (Audio(audio),)
        self._early += audio
        return self._begin() if self._ms(len(self._early)) >= _PATIENCE_MS else ()

    def _commit(self, event: Json) -> Sequence[Said]:
        taken_ms = self._items.taken_ms if self._items else 0.0
        waiting = self._ms(self._bytes + len(self._early)) - taken_ms
        if waiting < _LEAST_MS:
            why = f"nothing to commit: the buffer has {max(waiting, 0):.0f} ms of audio, and {_LEAST_MS} ms are wanted"
            return self._wrong(event, why, code="input_audio_buffer_commit_empty")
        begun = () if self._items else self._begin()
        assert self._items
        flush_id, messages = self._items.commit(self._ms(self._bytes))
        return (*begun, *map(self._reply, messages), Flush(id=flush_id))

    def _clear(self, _: Json) -> Sequence[Said]:
        self._early = b""
        cleared = self._reply({"type": "input_audio_buffer.cleared"})
        if not self._items:
            return (cleared,)
        return (cleared, Flush(id=self._items.clear(self._ms(self._bytes))))

    def _begin(self) -> Sequence[Said]:
        self._items = Items(self._new_item, beta=self._beta)
        self._apply()
        audio, self._early = self._early, b""
        self._bytes = len(audio)
        return (Begin(self._settings.options), Audio(audio))

    def _apply(self) -> None:
        if self._items:
            self._items.manual = self._settings.manual
            self._items.logprobs = LOGPROBS in self._settings.include

    def _ms(self, count: int) -> float:
        options = self._settings.options
        return count * 1000 / (SAMPLE_WIDTH[options.raw_encoding] * options.sample_rate)

    def _session(self, *, beta: bool) -> Json:
        session = {"id": f"sess_{self._base}", "object": "realtime.transcription_session"}
        # As with OpenAI, the beta's secret is only told over HTTP.
        return session | self._settings.shape(beta=beta) | ({"client_secret": None} if beta else {})

    def _wrong(self, event: Json, why: str, *, code: str, param: str | None = None) -> Sequence[Said]:
        """Tell the client what was wrong; the session goes on."""
        theirs = event.get("event_id")
        known = theirs if isinstance(theirs, str) and len(theirs) <= _MAX_EVENT_ID else None
        error = openai_errors.body(why, code=code, param=param) | {"event_id": known}
        return (self._reply({"type": "error", "error": error}),)

    def _reply(self, message: Json) -> Reply:
        return Reply(self._dump(message))

    def _dump(self, message: Json) -> str:
        return json.dumps({"event_id": f"event_{self._base}_{next(self._events)}", **message})

    def _new_item(self) -> str:
        return f"item_{self._base}_{next(self._item_ids)}"
