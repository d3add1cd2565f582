"""FunASR's WebSocket protocol, the 2pass family (docs/dialects/funasr.md).

A connection carries one recording after the other ("files", though a microphone is one): a config opens one,
`is_speaking: false` ends it, and its last result says `is_final`. Which results belong to which file follows from the
flush that ends each; times count from its first sample.
"""

from collections import deque
from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError
from starlette.requests import HTTPConnection
from starlette.responses import Response

from gateway.dialects.base import Audio, Begin, Dialect, Farewell, Said
from gateway.dialects.funasr_file import Config, File
from gateway.dialects.texts import explained, farewell, object_in
from gateway.refusal import problem_of, response_of
from shared.errors import BadInput, ScribeError
from shared.events import End, ErrorEvent, Final, Flushed, Partial, TranscriptEvent
from shared.protocol import EndOfAudio, Flush, SessionOptions


class Message(Config):
    is_speaking: bool = True
    is_finished: bool = False
    is_end: bool = False

    @property
    def stops(self) -> bool:
        return self.is_finished or not self.is_speaking


class FunAsr(Dialect):
    """waiting ──(config ──> audio* ──> is_speaking false)*──> the client closes, or a container ends"""

    subprotocols = ("binary",)
    secret_in_query = True

    @classmethod
    def response(cls, error: ScribeError) -> Response:
        return response_of(error)

    def __init__(self, head: HTTPConnection) -> None:  # noqa: ARG002 - all is said in messages
        self._config = Config()
        self._begun: Config | None = None
        self._files: deque[File] = deque()  # results are of the first, what is heard of the last
        self._start_ms = 0  # of the first
        self._ended = False  # a container was: no other file follows
        self._complaint = ""

    def greet(self) -> Sequence[Said]:
        return ()

    def hear(self, message: str | bytes) -> Sequence[Said]:
        given = object_in(message)
        if given is not None:
            return self._control(_message(given))
        if isinstance(message, str):
            raise BadInput('message: text frames are JSON, like {"mode": "2pass", "is_speaking": true}')
        self._open_file()
        return self._session(Audio(message))

    def tell(self, event: TranscriptEvent, channel: int) -> Sequence[str]:  # noqa: ARG002 - there is one
        if not self._files:
            return ()
        file = self._files[0]
        file.start_ms = self._start_ms
        if isinstance(event, Partial):
            return file.partial(event)
        if isinstance(event, Final):
            return file.final(event)
        if isinstance(event, Flushed | End):
            if isinstance(event, Flushed):
                self._start_ms = event.through_ms
            self._files.popleft()
            return file.last(self._complaint)
        if isinstance(event, ErrorEvent):
            return (file.failed(event.message),)
        return ()

    def refuse(self, error: ScribeError) -> Sequence[str]:
        words = problem_of(error).message
        file = self._files[0] if self._files else File(self._config)
        if self._ended and isinstance(error, BadInput):
            self._complaint = words  # about the container's end: what was whole comes first
            return ()
        return (file.failed(words),)

    def close(self, error: ScribeError | None) -> Farewell:
        return farewell(error)

    def _control(self, message: Message) -> Sequence[Said]:
        self._configure(message)
        file = self._open_file()
        if not message.stops:
            file.config = self._config
            return ()
        file.ending, file.acknowledge = True, message.is_end
        if self._config.raw:
            return self._session(Flush())
        said = self._session(EndOfAudio())
        self._ended = True
        return said

    def _configure(self, message: Message) -> None:
        named = message.model_dump(include=set(Config.model_fields), exclude_unset=True)
        self._config = self._config.model_copy(update=named)
        before, now = self._begun or self._config, self._config
        if (before.audio_fs, before.raw) != (now.audio_fs, now.raw):
            raise BadInput(
                f"this connection's audio is {before.wav_format} of {before.audio_fs} Hz: open another for {now.wav_format} of {now.audio_fs} Hz"
            )

    def _open_file(self) -> File:
        """The one that the client is at."""
        if not self._files or self._files[-1].ending:
            self._files.append(File(self._config))
        return self._files[-1]

    def _session(self, said: Said) -> Sequence[Said]:
        if self._ended:
            raise BadInput(f"a {self._config.wav_format} file takes a connection of its own: open another")
        if self._begun:
            return (said,)
        self._begun = self._config
        options = SessionOptions(
            sample_rate=self._config.audio_fs,
            encoding="auto" if self._config.raw else "container",
            partials=self._config.mode != "offline",
        )
        return (Begin(options), said)


def _message(given: dict[str, Any]) -> Message:
    try:
        return Message.model_validate({name: value for name, value in given.items() if value is not None})
    except ValidationError as error:
        raise BadInput(explained(error, "message")) from error
