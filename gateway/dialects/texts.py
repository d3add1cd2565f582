"""What protocols of JSON in text frames have in common."""

import json
from typing import Any

from pydantic import ValidationError

from gateway.dialects.base import Farewell
from gateway.refusal import CLOSE_OK, close_code_of, problem_of
from shared.errors import ScribeError

# RFC 6455, 5.5: 125 bytes for a close frame's code and reason.
_REASON_BYTES = 123
# A control message sent as a binary frame is short; audio that begins with a brace need not be read as JSON.
_BINARY_JSON = 4_096


def object_in(message: str | bytes) -> dict[str, Any] | None:
    """The JSON object that a message is; None when it is none."""
    if isinstance(message, bytes) and not (message[:1] == b"{" and len(message) <= _BINARY_JSON):
        return None
    try:
        found = json.loads(message)
    except (ValueError, RecursionError):  # the latter: brackets in brackets, a thousand deep
        return None
    return found if isinstance(found, dict) else None


def explained(error: ValidationError, what: str) -> str:
    """One line for people: which field, what was wrong with it, what would be right."""
    first = error.errors()[0]
    return f"{what}: {'.'.join(map(str, first['loc']))}: {first['msg']}, got {first['input']!r:.80}"


def farewell(error: ScribeError | None) -> Farewell:
    """For protocols whose only place for an error is the close frame."""
    if error is None:
        return Farewell(CLOSE_OK)
    return Farewell(close_code_of(error), as_reason(problem_of(error).message))


def as_reason(text: str) -> str:
    """As much of it as a close frame takes."""
    return text.encode()[:_REASON_BYTES].decode(errors="ignore")
