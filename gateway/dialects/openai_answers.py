"""What OpenAI's transcription endpoint answers: the request read, the transcript in each of its formats. Pure."""

import math
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from gateway.dialects.openai_items import word_logprobs
from gateway.dialects.openai_session import as_english
from shared.captions import srt, vtt
from shared.errors import BadInput
from shared.events import Final

# What fields of a form hold that are not the file: name -> values.
Fields = dict[str, list[str]]

FORMATS = ("json", "text", "srt", "vtt", "verbose_json")
_STREAMED = ("json", "text")
_GRAINS = ("segment", "word")


class BadField(BadInput):
    """A field of the form is wrong; `param` names it."""

    def __init__(self, param: str, message: str) -> None:
        super().__init__(f"{param}: {message}")
        self.param = param


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a request asks for. Fields that are not here are of no use to us."""

    form: str = "json"
    stream: bool = False
    grains: frozenset[str] = frozenset({"segment"})
    logprobs: bool = False

    @classmethod
    def of(cls, fields: Fields) -> "Wanted":
        """Raises BadField."""
        form = _last(fields, "response_format") or "json"
        stream = _last(fields, "stream") in {"true", "True", "1"}
        if form == "diarized_json":
            raise BadField("response_format", "speakers are not told apart here; verbose_json has times")
        if form not in FORMATS:
            raise BadField("response_format", f"one of {', '.join(FORMATS)} is wanted, got {form!r:.80}")
        if stream and form not in _STREAMED:
            raise BadField("stream", f"{form} is not streamed: leave `stream` out, or ask for json")
        grains = frozenset(_all(fields, "timestamp_granularities"))
        if not grains <= {*_GRAINS}:
            raise BadField(
                "timestamp_granularities", f"{' and '.join(_GRAINS)} are known, got {sorted(grains)!r:.80}"
            )
        _check_languages(fields)
        return cls(form, stream, grains or frozenset({"segment"}), "logprobs" in _all(fields, "include"))


def text_of(finals: Sequence[Final]) -> str:
    return " ".join(final.text for final in finals if final.text)


def rendered(wanted: Wanted, finals: Sequence[Final], audio_ms: int) -> str | dict[str, Any]:
    """The answer's body: a string as it is, or JSON."""
    return _RENDERERS[wanted.form](wanted, [final for final in finals if final.text.strip()], audio_ms / 1000)


def _json(wanted: Wanted, finals: Sequence[Final], seconds: float) -> dict[str, Any]:
    text = text_of(finals)
    logprobs = {"logprobs": word_logprobs(text, [word for final in finals for word in final.words])}
    return {"text": text, "usage": _usage(seconds)} | (logprobs if wanted.logprobs else {})


def _verbose_json(wanted: Wanted, finals: Sequence[Final], seconds: float) -> dict[str, Any]:
    said: dict[str, Any] = {
        "task": "transcribe",
        "language": "english",
        "duration": seconds,
        "text": text_of(finals),
        "usage": _usage(seconds),
    }
    if "segment" in wanted.grains:
        said["segments"] = [_segment(at, final) for at, final in enumerate(finals)]
    if "word" in wanted.grains:
        said["words"] = [
            {"word": word.text, "start": word.start_ms / 1000, "end": word.end_ms / 1000}
            for final in finals
            for word in final.words
        ]
    return said


def _segment(at: int, final: Final) -> dict[str, Any]:
    """Whisper's fields, all of which clients' types want; our tokens would mean nothing to them."""
    raw = final.text.encode()
    return {
        "id": at,
        "seek": final.start_ms // 10,  # Whisper's frames
        "start": final.start_ms / 1000,
        "end": final.end_ms / 1000,
        "text": final.text,
        "tokens": [],
        "temperature": 0.0,
        "avg_logprob": round(math.log(final.confidence), 4) if final.confidence else 0.0,
        "compression_ratio": round(len(raw) / len(zlib.compress(raw)), 3),
        "no_speech_prob": 0.0,
    }


def _usage(seconds: float) -> dict[str, Any]:
    return {"type": "duration", "seconds": seconds}


def _check_languages(fields: Fields) -> None:
    for name in ("language", "languages"):
        if asked := [language for language in _all(fields, name) if language]:
            try:
                as_english(asked)
            except ValueError as error:
                raise BadField(name, f"{error}, got {', '.join(asked)!r:.80}") from error


def _all(fields: Fields, name: str) -> list[str]:
    """Lists come as `name[]`, repeated."""
    return [*fields.get(name, ()), *fields.get(f"{name}[]", ())]


def _last(fields: Fields, name: str) -> str:
    return fields.get(name, [""])[-1]


_RENDERERS: dict[str, Callable[[Wanted, Sequence[Final], float], str | dict[str, Any]]] = {
    "json": _json,
    "text": lambda _, finals, __: f"{text_of(finals)}\n",
    "srt": lambda _, finals, __: srt(finals),
    "vtt": lambda _, finals, __: vtt(finals),
    "verbose_json": _verbose_json,
}
