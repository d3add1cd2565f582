"""Transcript events: the only thing subscribers ever see.

Events of a session are numbered 1, 2, 3 … without holes, in the order they were committed. They are stored in
the session's events stream and published on its channel as the same JSON. A subscriber that sees a hole
reads the events stream from its last number.

Transcript text is personal data: it is never logged.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

PROTOCOL_VERSION: Literal[1] = 1

GapReason = Literal["client_too_fast", "redis_lost_data"]
WordTimes = Literal["estimated", "measured"]


class Hop(BaseModel):
    """Where one pass over the audio spent its time at one stage, in milliseconds."""

    stage: str
    worker: str
    wait_ms: float = Field(description="from the token's creation until a worker took it")
    load_ms: float = Field(description="reading state and inputs from Redis")
    step_ms: float = Field(description="the stage's own work: inference and bookkeeping")


class Trace(BaseModel):
    """Time spent by the newest audio that this event covers. Times of day are Unix milliseconds."""

    received_ms: float = Field(description="when the gateway had that chunk complete")
    committed_ms: float = Field(description="just before the event was committed")
    hops: list[Hop] = Field(default_factory=list)


class Word(BaseModel):
    text: str
    start_ms: int
    end_ms: int
    confidence: float | None = Field(default=None, ge=0, le=1)


class _Event(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    v: Literal[1] = Field(default=PROTOCOL_VERSION, description="version of this schema")
    session: str
    event: int = Field(default=0, ge=0, description="1, 2, 3 … per session, no holes; given at commit")
    through_ms: int = Field(default=0, ge=0, description="audio time decoded so far")
    trace: Trace | None = None


class SpeechStart(_Event):
    type: Literal["speech_start"] = "speech_start"
    utterance: int
    start_ms: int


class _Transcript(_Event):
    utterance: int = Field(description="1, 2, 3 … per session")
    text: str
    stable: int = Field(ge=0, description="leading characters of text that will not change any more")
    start_ms: int
    end_ms: int


class Partial(_Transcript):
    """The text so far; everything after `stable` is tentative."""

    type: Literal["partial"] = "partial"


class Final(_Transcript):
    """The utterance's text, for good. Empty when what sounded like speech held no words."""

    type: Literal["final"] = "final"
    confidence: float | None = Field(default=None, ge=0, le=1)
    words: list[Word] = Field(default_factory=list)
    word_times: WordTimes = "estimated"


class SpeechEnd(_Event):
    type: Literal["speech_end"] = "speech_end"
    utterance: int
    end_ms: int


class Silence(_Event):
    """Nobody has spoken for as long as the session's `silence_ms`; told once, until somebody speaks again."""

    type: Literal["silence"] = "silence"
    start_ms: int = Field(description="end of the last speech; 0: nobody has spoken yet")
    end_ms: int


class Flushed(_Event):
    """Everything sent before the flush has been decoded and its events are out."""

    type: Literal["flushed"] = "flushed"
    flush_id: str


class Gap(_Event):
    """Audio that was dropped before it could be decoded. Nothing is ever dropped without one."""

    type: Literal["gap"] = "gap"
    start_ms: int
    end_ms: int
    reason: GapReason


class ErrorEvent(_Event):
    type: Literal["error"] = "error"
    code: str
    message: str
    retryable: bool = False


class End(_Event):
    """The last event of a session."""

    type: Literal["end"] = "end"
    audio_ms: int = Field(description="audio decoded, silence included")
    speech_ms: int = Field(description="audio in utterances")
    utterances: int


TranscriptEvent = Annotated[
    SpeechStart | Partial | Final | SpeechEnd | Silence | Flushed | Gap | ErrorEvent | End,
    Field(discriminator="type"),
]
EVENT_ADAPTER: TypeAdapter[TranscriptEvent] = TypeAdapter(TranscriptEvent)


def parse_event(raw: str | bytes) -> TranscriptEvent:
    """Read one event's JSON. Raises pydantic.ValidationError."""
    return EVENT_ADAPTER.validate_json(raw)
