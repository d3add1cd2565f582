"""What is spoken at `/`, where clients that know only a host and a port connect: Vosk's or FunASR's protocol.

FunASR's programs offer the subprotocol `binary`; its HTML5 page does not, but says `is_speaking` in its first message.
"""

from collections.abc import Sequence

from starlette.requests import HTTPConnection
from starlette.responses import Response

from gateway.dialects.base import Dialect, Farewell, Said
from gateway.dialects.funasr import FunAsr
from gateway.dialects.texts import object_in
from gateway.dialects.vosk import Vosk
from gateway.refusal import response_of
from shared.errors import ScribeError
from shared.events import TranscriptEvent


class Root(Dialect):
    """undecided ──first message──> one of the two"""

    subprotocols = FunAsr.subprotocols
    secret_in_query = True

    @classmethod
    def response(cls, error: ScribeError) -> Response:
        return response_of(error)

    def __init__(self, head: HTTPConnection) -> None:
        self._head = head
        self._undecided = not set(self.subprotocols) & set(head.scope.get("subprotocols", ()))
        self._speaks: Dialect = Vosk(head) if self._undecided else FunAsr(head)

    def greet(self) -> Sequence[Said]:
        return ()

    def hear(self, message: str | bytes) -> Sequence[Said]:
        if self._undecided:
            self._undecided = False
            if {"is_speaking", "chunk_size"} & (object_in(message) or {}).keys():
                self._speaks = FunAsr(self._head)
        return self._speaks.hear(message)

    def tell(self, event: TranscriptEvent, channel: int) -> Sequence[str]:
        return self._speaks.tell(event, channel)

    def refuse(self, error: ScribeError) -> Sequence[str]:
        return self._speaks.refuse(error)

    def close(self, error: ScribeError | None) -> Farewell:
        return self._speaks.close(error)
