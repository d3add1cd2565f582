"""What an OpenAI transcription session is set to: one truth, read and written in the GA shape or in the beta's."""

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from shared.protocol import RawEncoding, SessionOptions

LOGPROBS = "item.input_audio_transcription.logprobs"

_ENCODING: dict[str, RawEncoding] = {"audio/pcm": "pcm_s16le", "audio/pcmu": "mulaw", "audio/pcma": "alaw"}
# Of SessionOptions.endpointing_ms.
_SHORTEST_MS, _LONGEST_MS = 200, 3_000
# Our VAD hears pauses, not meaning. OpenAI waits 8, 4 and 2 s at most, and mostly less.
_EAGERNESS_MS = {"low": 2_000, "medium": 1_000, "auto": 1_000, "high": 500}
# What `null` turns off; anywhere else it asks for the default.
_OFF = {"turn_detection", "noise_reduction"}
_BETA_NAMES = {
    "input_audio_format": "format",
    "input_audio_transcription": "transcription",
    "input_audio_noise_reduction": "noise_reduction",
    "turn_detection": "turn_detection",
}
_BETA_FORMATS = {"pcm16": "audio/pcm", "g711_ulaw": "audio/pcmu", "g711_alaw": "audio/pcma"}

Json = dict[str, Any]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True)


class _Format(_Part):
    type: Literal["audio/pcm", "audio/pcmu", "audio/pcma"] = "audio/pcm"
    rate: int = Field(default=24_000, ge=8_000, le=48_000)


class _Transcription(_Part):
    model: str | None = Field(default=None, max_length=200)
    language: str = "en"
    languages: list[str] = Field(default=[], exclude=True)

    @field_validator("language")
    @classmethod
    def _english(cls, language: str) -> str:
        return as_english([language])

    @field_validator("languages")
    @classmethod
    def _english_among(cls, languages: list[str]) -> list[str]:
        return [as_english(languages)] if languages else []


class _TurnDetection(_Part):
    type: Literal["server_vad"] = "server_vad"
    silence_duration_ms: int = 500

    @model_validator(mode="before")
    @classmethod
    def _semantic(cls, asked: Any) -> Any:
        if isinstance(asked, Mapping) and asked.get("type") == "semantic_vad":
            pause = _EAGERNESS_MS.get(str(asked.get("eagerness")), _EAGERNESS_MS["auto"])
            return {"silence_duration_ms": pause}
        return asked

    @field_validator("silence_duration_ms")
    @classmethod
    def _possible(cls, asked: int) -> int:
        return min(max(asked, _SHORTEST_MS), _LONGEST_MS)


class _NoiseReduction(_Part):
    type: Literal["near_field", "far_field"] = "near_field"


class _Input(_Part):
    format: _Format = _Format()
    transcription: _Transcription = _Transcription()
    noise_reduction: _NoiseReduction | None = None
    turn_detection: _TurnDetection | None = _TurnDetection()


class _Audio(_Part):
    input: _Input = _Input()


class SessionSettings(_Part):
    """What is in effect. What we do not use is not kept."""

    type: Literal["transcription"] = "transcription"
    audio: _Audio = _Audio()
    include: list[Literal["item.input_audio_transcription.logprobs"]] = []

    @property
    def options(self) -> SessionOptions:
        """What the core is asked for."""
        heard, turns = self.audio.input, self.audio.input.turn_detection
        return SessionOptions(
            sample_rate=heard.format.rate if heard.format.type == "audio/pcm" else 8_000,
            encoding=_ENCODING[heard.format.type],
            endpointing_ms=(turns or _TurnDetection()).silence_duration_ms,
            denoise=heard.noise_reduction is not None,
        )

    @property
    def manual(self) -> bool:
        """Whether only the client says where an item ends."""
        return self.audio.input.turn_detection is None

    def changed(self, update: Json, *, beta: bool) -> "SessionSettings":
        """With what an update names; all else stays. Raises pydantic.ValidationError: `explain` reads it."""
        fields = _from_beta(update) if beta else update
        return SessionSettings.model_validate(_merged(self.model_dump(), fields))

    def shape(self, *, beta: bool) -> Json:
        """The whole of it, as OpenAI writes it."""
        fields = self.model_dump()
        fields["include"] = fields["include"] or None
        heard = fields["audio"]["input"]
        if heard["format"]["type"] != "audio/pcm":
            del heard["format"]["rate"]
        return _to_beta(fields) if beta else fields


def explain(error: ValidationError, *, beta: bool) -> tuple[str, str]:
    """The parameter that was wrong, and what would be right."""
    first = error.errors()[0]
    path = [str(step) for step in first["loc"]]
    if beta and path[:2] == ["audio", "input"]:
        known = {name: old for old, name in _BETA_NAMES.items()}
        path = [known.get(path[2], path[2]), *path[3:]] if path[2:] else []
    param = ".".join(["session", *path])
    return param, f"{param}: {first['msg'].removeprefix('Value error, ')}, got {first['input']!r:.80}"


def deviations(asked: Json, effective: Json, path: str = "") -> Iterator[str]:
    """Where what is in effect is not what was asked for."""
    for key, value in asked.items():
        name, used = f"{path}{key}", effective.get(key)
        if isinstance(value, dict) and isinstance(used, dict):
            yield from deviations(value, used, f"{name}.")
        elif value not in (None, []) and value != used:
            yield f"{name:.80}: not used" if used is None else f"{name}: {used!r} is used"


def as_english(languages: list[str]) -> str:
    """Raises ValueError when English is none of them."""
    if any(language.lower().replace("_", "-").split("-")[0] in {"en", "english"} for language in languages):
        return "en"
    raise ValueError("only English is spoken here: set it to 'en', or leave it out")


def _merged(old: Json, new: Json) -> Json:
    result = dict(old)
    for key, value in new.items():
        before = result.get(key)
        if isinstance(value, dict):
            result[key] = _merged(before if isinstance(before, dict) else {}, value)
        elif value is None and key not in _OFF:
            result.pop(key, None)
        else:
            result[key] = value
    return result


def _from_beta(session: Json) -> Json:
    heard = {name: session[old] for old, name in _BETA_NAMES.items() if old in session}
    if isinstance(form := heard.get("format"), str):
        heard["format"] = {"type": _BETA_FORMATS.get(form, form)}
    return {"audio": {"input": heard}} | {key: session[key] for key in ("include",) if key in session}


def _to_beta(fields: Json) -> Json:
    heard = fields["audio"]["input"]
    names = {name: old for old, name in _BETA_FORMATS.items()}
    return {
        **{old: heard[name] for old, name in _BETA_NAMES.items()},
        "input_audio_format": names[heard["format"]["type"]],
        "include": fields["include"],
    }
