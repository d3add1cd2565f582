"""Our own protocol (docs/protocol.md): its messages are what the gateway's core takes and gives."""

from collections.abc import Sequence
from typing import Any

from starlette.requests import HTTPConnection
from starlette.responses import Response

from gateway.dialects.base import Audio, Begin, Dialect, Farewell, Said
from gateway.door import SUBPROTOCOL
from gateway.messages import control_of, request_of
from gateway.refusal import CLOSE_OK, close_code_of, problem_of, response_of
from shared.errors import ScribeError
from shared.events import TranscriptEvent
from shared.protocol import Advice, Configure, Pong, Ready, Resume, SessionOptions


class Native(Dialect):
    """A session is begun by the query, by the first message, or by anything else with the defaults."""

    subprotocols = (SUBPROTOCOL,)
    resumes = True

    @classmethod
    def response(cls, error: ScribeError) -> Response:
        return response_of(error)

    def __init__(self, head: HTTPConnection) -> None:
        self._query = dict(head.query_params)
        self._begun = False

    def greet(self) -> Sequence[Said]:
        return self._begin(request_of(self._query)) if self._query else ()

    def impatient(self) -> Sequence[Said]:
        return self._begin(SessionOptions())

    def hear(self, message: str | bytes) -> Sequence[Said]:
        said = Audio(message) if isinstance(message, bytes) else _said(control_of(message))
        if self._begun or isinstance(said, Begin):
            self._begun = True
            return (said,)
        return (*self._begin(SessionOptions()), said)

    def ready(self, ready: Ready) -> Sequence[str]:
        return (ready.model_dump_json(),)

    def pong(self, pong: Pong) -> Sequence[str]:
        return (pong.model_dump_json(),)

    def advise(self, advice: Advice) -> Sequence[str]:
        return (advice.model_dump_json(),)

    def tell(self, event: TranscriptEvent, channel: int) -> Sequence[str]:  # noqa: ARG002 - it names its session
        return (event.model_dump_json(),)

    def tell_raw(self, raw: bytes, fields: dict[str, Any], channel: int) -> Sequence[str]:  # noqa: ARG002 - it is text already
        return (raw.decode(),)

    def refuse(self, error: ScribeError) -> Sequence[str]:
        return (problem_of(error).model_dump_json(exclude_none=True),)

    def close(self, error: ScribeError | None) -> Farewell:
        return Farewell(close_code_of(error)) if error else Farewell(CLOSE_OK)

    def _begin(self, request: SessionOptions | Resume) -> Sequence[Said]:
        self._begun = True
        return (Begin(request),)


def _said(message: Any) -> Said:
    if isinstance(message, Configure):
        return Begin(SessionOptions(**message.model_dump(exclude={"type"})))
    return Begin(message) if isinstance(message, Resume) else message
