"""What a Deepgram client asks for in its query, as the options of a session.

What we can do is mapped; what changes only how text looks is accepted and ignored, like parameters that nobody knows (LiveKit
sends some). Refused is what a client would wrongly rely on: another language, redaction, results sent elsewhere.
"""

from dataclasses import dataclass, replace
from typing import get_args

from starlette.datastructures import QueryParams

from shared.errors import BadInput
from shared.protocol import Encoding, SessionOptions

# linear16 is taken as `auto`: many examples read a WAV file, header and all, and announce linear16.
_ENCODINGS: dict[str, Encoding] = {
    "linear16": "auto",
    "linear32": "pcm_f32le",
    "mulaw": "mulaw",
    "alaw": "alaw",
    "flac": "container",
    "ogg-opus": "container",
    "opus": "container",
}
_RAW = ("linear16", "linear32", "mulaw", "alaw")
_RIGHT = (
    f"send {', '.join(_RAW)} with sample_rate, or a file or stream with a header (WAV, FLAC, MP3, Ogg or WebM Opus, m4a) "
    "without encoding"
)
_REFUSED = {
    "callback": "results are sent on this connection only; leave it out",
    "redact": "nothing would be redacted; leave it out, and do it yourself",
}
LANGUAGES: tuple[str, ...] = get_args(SessionOptions.model_fields["language"].annotation)

# Bounds of the session's endpointing_ms; `false`, which means never, is the longest.
SHORTEST_MS, USUAL_MS, LONGEST_MS = 200, 500, 3_000
# When an empty result tells of silence, if no utterance_end_ms says it.
SILENCE_MS = 1_000


@dataclass(frozen=True, slots=True)
class Asked:
    """A query, understood."""

    options: SessionOptions
    model: str
    vad_events: bool
    utterance_end: bool
    utterances: bool
    tags: tuple[str, ...]

    @property
    def transcripts(self) -> int:
        """One, or one for each channel."""
        return self.options.channels if self.options.multichannel else 1


def asked(query: QueryParams) -> Asked:
    """Of a live stream. Raises BadInput that says what would be right."""
    for name, instead in _REFUSED.items():
        if query.get(name, "false").lower() != "false":
            raise BadInput(f"{name}: {instead}")
    if _flag(query, "multichannel") and not query.get("channels"):
        raise BadInput("channels: required with multichannel, how many there are")
    utterance_end_ms = _number(query, "utterance_end_ms", 1_000, 60_000, 0)
    options = SessionOptions(
        encoding=_encoding(query),
        sample_rate=_number(query, "sample_rate", 8_000, 48_000, 16_000),
        channels=_number(query, "channels", 1, 8, 1),
        multichannel=_flag(query, "multichannel"),
        language=_language(query),
        partials=_flag(query, "interim_results"),
        endpointing_ms=_endpointing(query),
        silence_ms=utterance_end_ms or SILENCE_MS,
    )
    return Asked(
        options,
        model=query.get("model") or "general",
        vad_events=_flag(query, "vad_events"),
        utterance_end=bool(utterance_end_ms),
        utterances=_flag(query, "utterances"),
        tags=tuple(query.getlist("tag")),
    )


def asked_of_recording(query: QueryParams, channels: int | None) -> Asked:
    """Of a recording whose header names so many channels, if that could be read. Raises BadInput likewise."""
    if channels and not query.get("channels") and _flag(query, "multichannel"):
        query = QueryParams([*query.multi_items(), ("channels", str(channels))])
    wanted = asked(query)
    changes = {
        "encoding": wanted.options.encoding if query.get("encoding") else "container",
        "endpointing_ms": _split_ms(query) if wanted.utterances else USUAL_MS,
        "partials": False,
        "silence_ms": 0,
    }
    return replace(wanted, options=wanted.options.model_copy(update=changes))


def _split_ms(query: QueryParams) -> int:
    """The pause between utterances: `utt_split`, in seconds."""
    try:
        wanted = float(query.get("utt_split", "0.8"))
    except ValueError as error:
        raise _wrong(query, "utt_split", "a number of seconds") from error
    if not wanted > 0:
        raise _wrong(query, "utt_split", "more than 0")
    return _within(min(wanted, 60) * 1_000)


def _encoding(query: QueryParams) -> Encoding:
    name = query.get("encoding", "").lower()
    if not name:
        return "auto"
    if name not in _ENCODINGS:
        raise BadInput(f"encoding: {name!r:.40} can't be decoded here: {_RIGHT}")
    if name in _RAW and not query.get("sample_rate"):
        raise BadInput(f"sample_rate: required with encoding={name}, in Hz")
    return _ENCODINGS[name]


def _language(query: QueryParams) -> str:
    """`multi` and no language at all are whatever the fleet speaks."""
    name = query.get("language", "multi").lower()
    language = LANGUAGES[0] if name == "multi" else name.split("-")[0]
    if language not in LANGUAGES:
        raise _wrong(query, "language", f"one of {', '.join(LANGUAGES)} (also with a region) or multi")
    return language


def _endpointing(query: QueryParams) -> int:
    value = query.get("endpointing", "true").lower()
    if value in {"true", "false"}:
        return USUAL_MS if value == "true" else LONGEST_MS
    if not value.isdecimal():
        raise _wrong(query, "endpointing", "milliseconds, true or false")
    return _within(float(value[:9]))


def _within(wanted_ms: float) -> int:
    return round(min(max(wanted_ms, SHORTEST_MS), LONGEST_MS))


def _flag(query: QueryParams, name: str) -> bool:
    value = query.get(name, "false").lower()
    if value not in {"true", "false"}:
        raise _wrong(query, name, "true or false")
    return value == "true"


def _number(query: QueryParams, name: str, least: int, most: int, default: int) -> int:
    value = query.get(name, "")
    if not value:
        return default
    if not (value.isdecimal() and len(value) < 9 and least <= int(value) <= most):
        raise _wrong(query, name, f"a whole number from {least} to {most}")
    return int(value)


def _wrong(query: QueryParams, name: str, right: str) -> BadInput:
    return BadInput(f"{name}: must be {right}, got {query.get(name)!r:.40}")
