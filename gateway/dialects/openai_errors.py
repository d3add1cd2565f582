"""Errors as OpenAI's clients know them."""

from typing import Any

from starlette.responses import JSONResponse

from gateway.refusal import problem_of, response_of
from shared.errors import Forbidden, QuotaExceeded, ScribeError, Unauthorized

BAD_REQUEST = "invalid_request_error"
_SERVER = "server_error"

# (type, code) where OpenAI has words of its own.
_KNOWN: dict[type[ScribeError], tuple[str, str]] = {
    Unauthorized: (BAD_REQUEST, "invalid_api_key"),
    Forbidden: ("permission_error", "insufficient_permissions"),
    QuotaExceeded: ("rate_limit_error", "rate_limit_exceeded"),
}


def body(
    message: str, *, kind: str = BAD_REQUEST, code: str | None = None, param: str | None = None
) -> dict[str, Any]:
    """What stands under `error`."""
    return {"message": message, "type": kind, "param": param, "code": code}


def body_of(error: ScribeError) -> dict[str, Any]:
    """An error of ours, without what is nobody's business."""
    problem = problem_of(error)
    otherwise = (BAD_REQUEST if error.blame == "client" else _SERVER, problem.code)
    kind, code = next((words for known, words in _KNOWN.items() if isinstance(error, known)), otherwise)
    return body(problem.message, kind=kind, code=code, param=getattr(error, "param", None))


def response(error: ScribeError, **beside: Any) -> JSONResponse:
    """The HTTP answer: our status and headers, OpenAI's body."""
    answer = response_of(error)
    answer.body = answer.render({"error": body_of(error), **beside})
    answer.headers["Content-Length"] = str(len(answer.body))
    return answer
