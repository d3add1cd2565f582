"""What a gateway says when it does not serve: problems, close codes. And its address."""

import json
from urllib.parse import urlencode, urlsplit, urlunsplit

from pydantic import BaseModel, ValidationError
from websockets.exceptions import ConnectionClosed

from shared.errors import BadInput, Overloaded, ScribeError, StageFailed
from shared.protocol import Problem


def _kinds(kind: type[ScribeError] = ScribeError) -> dict[str, type[ScribeError]]:
    """Every error by its code: the one that brought it, not those which only say more."""
    found = {kind.code: kind} if "code" in vars(kind) else {}
    for below in kind.__subclasses__():
        found |= _kinds(below)
    return found


_ERRORS = {code: kind for code, kind in _kinds().items() if kind is not ScribeError}
_REFUSALS: dict[int, type[ScribeError]] = {1003: BadInput, 1007: BadInput, 1008: BadInput, 1009: BadInput}
_REFUSALS |= {1001: Overloaded, 1012: Overloaded, 1013: Overloaded}  # going away, restarting, try again later


def error_named(code: str, message: str, retry_after_s: float | None = None) -> ScribeError:
    """Rebuild an error that came over the wire; one of a newer version is a StageFailed."""
    return _ERRORS.get(code, StageFailed)(message, retry_after_s=retry_after_s)


def error_of(url: str, status: int, body: bytes) -> ScribeError:
    """The error in a gateway's HTTP answer; of another server, what its status says."""
    text = body.decode(errors="replace").strip()
    try:
        problem = Problem.model_validate_json(text)
    except ValidationError:
        kind = Overloaded if status in {429, 503} else BadInput
        return kind(f"{url} refused the connection with HTTP {status}: {text[:200]}")
    hint = {401: "; give a key with --key or SCRIBE_KEY", 403: "; another key may"}.get(status, "")
    return error_named(problem.code, f"{url} refused: {problem.message}{hint}", problem.retry_after_s)


def stream_url(url: str, options: BaseModel) -> str:
    """Complete a gateway address: http(s) or ws(s), with or without the path."""
    parts = urlsplit(url if "//" in url else f"//{url}")
    scheme = {"": "ws", "http": "ws", "https": "wss"}.get(parts.scheme, parts.scheme)
    path = parts.path if parts.path.strip("/") else "/v1/stream"
    fields = options.model_dump(mode="json")
    query = urlencode({k: v if isinstance(v, str) else json.dumps(v) for k, v in fields.items()})
    return urlunsplit((scheme, parts.netloc, path, query, ""))


def closed(error: ConnectionClosed) -> ScribeError:
    code, reason = (error.rcvd.code, error.rcvd.reason) if error.rcvd else (1006, "no close frame")
    return _REFUSALS.get(code, StageFailed)(
        f"the gateway closed the session before its end: {reason or code}"
    )
