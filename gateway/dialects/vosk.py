"""Vosk-server's WebSocket protocol (docs/dialects/vosk.md): one reply for each binary frame, in order, none unasked.

Its clients send a frame and then wait for one reply: a reply too many, or one too few, shifts all that follow and the end
is lost. So a frame is answered at once, with what is known by then: the next final that was not told yet, else the
newest partial. What is said after a `reset` is answered after it.
"""

import json
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.requests import HTTPConnection
from starlette.responses import Response

from gateway.dialects.base import Audio, Begin, Dialect, Farewell, Reply, Said
from gateway.dialects.texts import explained, farewell, object_in
from gateway.refusal import response_of
from shared.errors import BadInput, ScribeError
from shared.events import End, Final, Flushed, Partial, TranscriptEvent
from shared.protocol import EndOfAudio, Flush, SessionOptions

_KNOWN = 'known are {"config": {…}}, {"eof": 1} and {"reset": 1}; audio goes in binary frames'
# What Vosk's models leave out. Inside a word it stays: it's, 3.5, well-known.
_MARKS = ".,;:!?…\"'“”‘’«»()[]{}¿¡-–—"  # noqa: RUF001 - those are the marks


class Config(BaseModel):
    """What a client may set, by message or in the query. Unknown settings are ignored, as the original does."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    sample_rate: float = Field(default=8_000, ge=8_000, le=48_000)
    words: bool = True
    max_alternatives: int = Field(default=0, ge=0)
    plain: bool = True


class Vosk(Dialect):
    """waiting for audio ──> lock-step ──(reset ──> replies held back until it is answered)*──> eof"""

    secret_in_query = True

    @classmethod
    def response(cls, error: ScribeError) -> Response:
        return response_of(error)

    def __init__(self, head: HTTPConnection) -> None:
        self._config = _config(dict(head.query_params), "query")
        self._begun = self._over = False
        self._partial = ""
        self._held: deque[Final] = deque()  # not told yet
        self._resets: deque[int] = deque()  # not answered yet: frames heard since each

    def greet(self) -> Sequence[Said]:
        return ()

    def hear(self, message: str | bytes) -> Sequence[Said]:
        if self._over:
            return ()
        control = object_in(message)
        if control is None:
            if isinstance(message, str):
                raise BadInput(f"message: text frames are JSON: {_KNOWN}")
            return self._frame(message)
        if "config" in control:
            self._configure(control["config"])
            return ()
        if control.get("eof"):
            self._over = True
            return self._session(EndOfAudio())
        if control.get("reset"):
            self._resets.append(0)
            return self._session(Flush())
        raise BadInput(f"message: {', '.join(control) or 'nothing'!r:.80} in it; {_KNOWN}")

    def tell(self, event: TranscriptEvent, channel: int) -> Sequence[str]:  # noqa: ARG002 - there is one
        if isinstance(event, Partial):
            self._partial = event.text
        elif isinstance(event, Final):
            self._partial = ""
            if self._shown(event.text):
                self._held.append(event)
        elif isinstance(event, Flushed) and self._resets:
            return (self._rest(), *(self._reply() for _ in range(self._resets.popleft())))
        elif isinstance(event, End):
            return (self._rest(),)
        return ()

    def close(self, error: ScribeError | None) -> Farewell:
        return farewell(error)

    def _configure(self, given: Any) -> None:
        if not isinstance(given, dict):
            raise BadInput(f"config: it holds an object of settings, got {given!r:.80}")
        before, self._config = self._config, _config(self._config.model_dump() | given, "config")
        if self._begun and before.sample_rate != self._config.sample_rate:
            raise BadInput("config: sample_rate must be set before the first audio; open a new connection")

    def _frame(self, audio: bytes) -> Sequence[Said]:
        if self._resets:
            self._resets[-1] += 1
            return self._session(Audio(audio))
        return self._session(Audio(audio), Reply(self._reply()))

    def _session(self, *said: Said) -> Sequence[Said]:
        if self._begun:
            return said
        self._begun = True
        # Clients stream WAV files with their header (test_srt.py, node/test.js): those say the rate themselves.
        options = SessionOptions(sample_rate=round(self._config.sample_rate), encoding="auto")
        return (Begin(options), *said)

    def _reply(self) -> str:
        if self._held:
            return self._final([self._held.popleft()])
        return _json({"partial": self._shown(self._partial)})

    def _rest(self) -> str:
        """One final, however many there are to tell."""
        rest = list(self._held)
        self._held.clear()
        return self._final(rest)

    def _final(self, finals: Sequence[Final]) -> str:
        text = " ".join(self._shown(final.text) for final in finals)
        words = self._words(finals) if self._config.words else []
        if not self._config.max_alternatives:
            return _json({"result": words, "text": text} if words else {"text": text})
        # Ours is a probability, of the least certain utterance; Vosk's is a likelihood, which only ranks.
        sure = min((_sure(final.confidence) for final in finals), default=1.0)
        only: dict[str, Any] = {"confidence": sure, "text": text}
        if words:
            only["result"] = [{key: value for key, value in word.items() if key != "conf"} for word in words]
        return _json({"alternatives": [only]})

    def _words(self, finals: Iterable[Final]) -> list[dict[str, Any]]:
        return [
            {
                "conf": _sure(word.confidence),
                "end": word.end_ms / 1000,
                "start": word.start_ms / 1000,
                "word": shown,
            }
            for final in finals
            for word in final.words
            if (shown := self._shown(word.text))
        ]

    def _shown(self, text: str) -> str:
        """As Vosk's models write: clients compare it with commands."""
        if not self._config.plain:
            return text
        return " ".join(bare for word in text.split() if (bare := word.strip(_MARKS).lower()))


def _config(given: dict[str, Any], what: str) -> Config:
    try:
        return Config.model_validate(given)
    except ValidationError as error:
        raise BadInput(explained(error, what)) from error


def _sure(confidence: float | None) -> float:
    """As Vosk has it where a model tells no confidence."""
    return 1.0 if confidence is None else confidence


def _json(reply: dict[str, Any]) -> str:
    return json.dumps(reply, ensure_ascii=False)
