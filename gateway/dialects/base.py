"""What a wire protocol is to the gateway: a translation, one object for each connection, that does no I/O.

A client's messages become what is said to a session; the session's events become messages to the client. The session
itself, its audio, limits and errors are the same for all (gateway/connection.py).
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from starlette.requests import HTTPConnection
from starlette.responses import Response

from shared.errors import ScribeError
from shared.events import EVENT_ADAPTER, TranscriptEvent
from shared.protocol import Advice, EndOfAudio, Flush, Ping, Pong, Ready, Resume, SessionOptions


@dataclass(frozen=True, slots=True)
class Begin:
    """Open the session, or take it up again. Said once, before any audio."""

    request: SessionOptions | Resume


@dataclass(frozen=True, slots=True)
class Audio:
    """Bytes as the options announce them; they need not end at a sample."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Reply:
    """Answer the client, at this place among what it said."""

    message: str


# In the order in which it is to take effect.
Said = Begin | Audio | Flush | EndOfAudio | Ping | Reply


class Farewell(NamedTuple):
    """How the socket is closed."""

    code: int
    reason: str = ""


class Dialect(ABC):
    """One connection's protocol.

    accept ──greet──> (hear)* ──Begin──> ready ──(hear, tell)*──> close; `refuse` comes before a close that has a reason.
    """

    # Subprotocols it answers with when they are offered.
    subprotocols: ClassVar[Sequence[str]] = ()
    # Seconds of silence after which a client is given up; None: SCRIBE_GATEWAY_IDLE_S.
    idle_s: ClassVar[float | None] = None
    # Whether a client that lost its connection may take its session up again; else that ends when it leaves.
    resumes: ClassVar[bool] = False
    # Whether `?token=` may hold the credentials: only for protocols whose clients can't send headers.
    secret_in_query: ClassVar[bool] = False

    @classmethod
    def secret(cls, head: HTTPConnection) -> str | None:
        """Credentials in a place that only this protocol knows; the Authorization header is read for all."""
        return None

    @classmethod
    @abstractmethod
    def response(cls, error: ScribeError) -> Response:
        """The HTTP answer to a client that is not let in."""

    @abstractmethod
    def __init__(self, head: HTTPConnection) -> None:
        """Read path, query and headers. Raises BadInput: the client is refused by HTTP."""

    def headers(self) -> Sequence[tuple[bytes, bytes]]:
        """Of the answer that accepts the handshake."""
        return ()

    @abstractmethod
    def greet(self) -> Sequence[Said]:
        """What is to be done as soon as the socket is accepted."""

    def impatient(self) -> Sequence[Said]:
        """A second after `greet` without a message. Only asked where `Begin` was not said yet."""
        return ()

    @abstractmethod
    def hear(self, message: str | bytes) -> Sequence[Said]:
        """Translate one message, text or binary. Raises BadInput, which ends the session."""

    def ready(self, ready: Ready) -> Sequence[str]:
        """The session is open."""
        return ()

    def pong(self, pong: Pong) -> Sequence[str]:
        """Where the session is: the answer to a `Ping`."""
        return ()

    def advise(self, advice: Advice) -> Sequence[str]:
        """What the client probably does wrong, where the protocol has a place for it; it is in the log, too."""
        return ()

    @abstractmethod
    def tell(self, event: TranscriptEvent, channel: int) -> Sequence[str]:
        """Translate one event. `channel`: 0, 1 … with the option `multichannel`, else 0.

        With several channels each has its own events, its own `flushed` and its own `end`.
        """

    def tell_raw(self, raw: bytes, fields: dict[str, Any], channel: int) -> Sequence[str]:
        """`tell`, for an event as it was published. `fields`: the same, parsed."""
        return self.tell(EVENT_ADAPTER.validate_python(fields), channel)

    def refuse(self, error: ScribeError) -> Sequence[str]:
        """What an accepted client is told about an error. It need not be the end: bad audio at the end is told, too."""
        return ()

    @abstractmethod
    def close(self, error: ScribeError | None) -> Farewell:
        """How to close the socket: after the last event of a session, or with the error that ended it."""


def chosen_subprotocol(client: HTTPConnection, dialect: type[Dialect]) -> str | None:
    """The one to answer with; never one that holds a secret."""
    offered = client.scope.get("subprotocols", ())
    return next((each for each in dialect.subprotocols if each in offered), None)
