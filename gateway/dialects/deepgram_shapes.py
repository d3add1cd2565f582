"""Deepgram's JSON, in the parts that live and recorded transcription share."""

import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from starlette.responses import JSONResponse, Response

from gateway.refusal import problem_of, response_of
from shared.errors import ScribeError
from shared.events import Final, Partial, Word

Shape = dict[str, Any]

# Clients only compare it: the same for every session of this fleet's software.
MODEL_UUID = str(uuid.uuid5(uuid.NAMESPACE_DNS, "streamscribe"))

_CODES = {
    400: "Bad Request",
    401: "INVALID_AUTH",
    403: "INSUFFICIENT_PERMISSIONS",
    413: "PAYLOAD_TOO_LARGE",
    429: "TOO_MANY_REQUESTS",
    503: "SERVICE_UNAVAILABLE",
}
_EXPOSED = "dg-request-id,dg-error"


def refusal(error: ScribeError) -> Response:
    """An error as Deepgram's HTTP answer."""
    ours = response_of(error)
    message, request_id = problem_of(error).message, str(uuid.uuid4())
    body = {"err_code": _CODES.get(ours.status_code, "INTERNAL_SERVER_ERROR"), "err_msg": message}
    kept = {name: ours.headers[name] for name in ("retry-after", "www-authenticate") if name in ours.headers}
    told = " ".join(message.split())[:500].encode("latin-1", "replace").decode("latin-1")
    headers = {**headers_of(request_id), **kept, "dg-error": told, "cache-control": "no-store"}
    return JSONResponse({**body, "request_id": request_id}, ours.status_code, headers)


def headers_of(request_id: str) -> dict[str, str]:
    """Of every answer."""
    return {"dg-request-id": request_id, "access-control-expose-headers": _EXPOSED}


def error(variant: str, description: str) -> Shape:
    return {"type": "Error", "variant": variant, "description": description}


def model_info(model: str) -> Shape:
    """The model is what the client asked for: a fleet has one, whatever it is called."""
    return {"name": model, "version": "1", "arch": "streamscribe"}


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def seconds(ms: float) -> float:
    return round(ms / 1_000, 3)


def word(text: str, start_ms: float, end_ms: float, confidence: float | None) -> Shape:
    """`word` is bare and in small letters, `punctuated_word` as in the transcript."""
    first = next((i for i, letter in enumerate(text) if letter.isalnum()), 0)
    last = next((i for i in range(len(text), 0, -1) if text[i - 1].isalnum()), len(text))
    return {
        "word": text[first:last].lower(),
        "start": seconds(start_ms),
        "end": seconds(end_ms),
        "confidence": confidence or 0.0,
        "punctuated_word": text,
    }


def words_of(words: Sequence[Word]) -> list[Shape]:
    return [word(each.text, each.start_ms, each.end_ms, each.confidence) for each in words]


def final(event: Final) -> Shape:
    """An utterance as an alternative."""
    return alternative(event.text, event.confidence or 0.0, words_of(event.words))


def partial(event: Partial) -> Shape:
    """Words have no times yet: they are spread by their lengths. What is stable is certain, of the rest nothing is known."""
    words: list[Shape] = []
    at, each_ms = 0, (event.end_ms - event.start_ms) / max(1, len(event.text))
    for text in event.text.split():
        begin = event.text.index(text, at)
        at = begin + len(text)
        start_ms, end_ms = event.start_ms + begin * each_ms, event.start_ms + at * each_ms
        words.append(word(text, start_ms, end_ms, float(at <= event.stable)))
    certain = sum(each["confidence"] for each in words) / max(1, len(words))
    return alternative(event.text, round(certain, 3), words)


def alternative(text: str, confidence: float, words: list[Shape]) -> Shape:
    return {"transcript": text, "confidence": confidence, "words": words}
