"""How a client is told no: before it is let in by HTTP, or in WebSocket messages where only those are seen."""

import contextlib
import math

import structlog
from starlette.responses import JSONResponse
from starlette.websockets import WebSocket, WebSocketDisconnect

from gateway.dialects.base import Dialect, chosen_subprotocol
from shared import metrics
from shared.errors import BadInput, Forbidden, NoSession, Overloaded, QuotaExceeded, ScribeError, Unauthorized
from shared.protocol import Problem

log = structlog.get_logger()

CLOSE_OK, CLOSE_GOING_AWAY = 1000, 1001
CLOSE_BAD_INPUT, CLOSE_INTERNAL, CLOSE_TRY_LATER = 1008, 1011, 1013

# The first that fits.
_STATUS: dict[type[ScribeError], int] = {
    Unauthorized: 401,
    Forbidden: 403,
    NoSession: 404,
    BadInput: 400,
    QuotaExceeded: 429,
}
# Of a request that may be repeated when nothing better is known.
_RETRY_S = 1.0


def problem_of(error: ScribeError) -> Problem:
    """What a client is told. Of our infrastructure no addresses or details: those are in the log."""
    message = str(error)
    if error.blame in {"infrastructure", "operator"}:
        message = "the service is not available at the moment"
    wait = error.retry_after_s
    return Problem(code=error.code, message=message, retryable=error.retryable, retry_after_s=wait)


def status_of(error: ScribeError) -> int:
    """HTTP status of an error."""
    known = next((status for kind, status in _STATUS.items() if isinstance(error, kind)), None)
    return known or (503 if error.retryable else 500)


def close_code_of(error: ScribeError) -> int:
    """WebSocket close code of an error."""
    if error.retryable:
        return CLOSE_TRY_LATER
    return CLOSE_BAD_INPUT if error.blame == "client" else CLOSE_INTERNAL


def response_of(error: ScribeError) -> JSONResponse:
    """The HTTP answer: our problem as JSON."""
    headers = {"Cache-Control": "no-store"}
    if isinstance(error, Unauthorized):
        headers["WWW-Authenticate"] = 'Bearer realm="StreamScribe"'
    if error.retryable:
        headers["Retry-After"] = str(math.ceil(error.retry_after_s or _RETRY_S))
    return JSONResponse(problem_of(error).model_dump(exclude_none=True), status_of(error), headers)


def note(error: ScribeError, session: str | None = None) -> None:
    """Count and log a refusal."""
    metrics.REFUSED.labels(error.code).inc()
    log.info("refused", session=session, code=error.code, why=str(error))


async def refuse(socket: WebSocket, error: ScribeError, dialect: type[Dialect]) -> None:
    """Refuse a client that has not been accepted yet: a program in the handshake, a page by message and close code.

    Pages see no HTTP status of a WebSocket's handshake, only that it failed.
    """
    note(error)
    answer = dialect.response(error)
    with contextlib.suppress(WebSocketDisconnect, RuntimeError):  # gone already
        if "origin" not in socket.headers:
            await socket.send_denial_response(answer)
            return
        await socket.accept(subprotocol=chosen_subprotocol(socket, dialect))
        await socket.send_text(bytes(answer.body).decode())
        await socket.close(close_code_of(error))


def draining() -> Overloaded:
    return Overloaded("this gateway is shutting down; connect again", retry_after_s=_RETRY_S)
