"""The native WebSocket protocol's messages, and the options of a session.

Client to server: binary frames are audio; text frames are one of `Configure` (first, optional), `Flush`,
`EndOfAudio`, `Ping`. Server to client: `Ready`, transcript events (shared/events.py), `Pong`, `Advice`. The JSON schema
in docs/protocol.schema.json is generated from these models.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from shared.events import TranscriptEvent

RawEncoding = Literal["pcm_s16le", "pcm_f32le", "mulaw", "alaw"]
# auto: a container where the first bytes are one's, else pcm_s16le.
Encoding = Literal["auto", "container", RawEncoding]
RingPolicy = Literal["block", "drop_oldest"]
# What JSON numbers and Lua's are exact to; a stream's entry ids end at 2^64.
MAX_EVENT = 2**53


class SessionOptions(BaseModel):
    """What a client may choose, in the query string or in its first message."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    sample_rate: int = Field(default=16_000, ge=8_000, le=48_000, description="Hz of the audio sent")
    encoding: Encoding = "auto"
    channels: int = Field(default=1, ge=1, le=8, description="interleaved; mixed down to one")
    multichannel: bool = Field(default=False, description="a transcript for each channel instead")
    language: Literal["en"] = Field(default="en", description="the default engine speaks English")
    partials: bool = Field(default=True, description="send partial events, not only finals")
    endpointing_ms: int = Field(default=500, ge=200, le=3_000, description="silence that ends an utterance")
    silence_ms: int = Field(
        default=0, ge=0, le=60_000, description="after so much silence a `silence` event is sent; 0: none"
    )
    chunk_ms: int = Field(default=320, ge=80, le=1_000, description="audio handed to the workers at a time")
    when_full: RingPolicy = Field(
        default="block",
        description="when the fleet falls behind: stop reading the socket, or drop the oldest audio and send a gap event",
    )
    denoise: bool = Field(default=False, description="noise reduction before recognition")

    @property
    def separate(self) -> int:
        """Transcripts of the session: one, or one for each channel."""
        return self.channels if self.multichannel else 1

    @property
    def raw_encoding(self) -> RawEncoding:
        """How samples are written when what arrives is no container."""
        return "pcm_s16le" if self.encoding == "auto" or self.encoding == "container" else self.encoding  # noqa: PLR1714 - mypy


class Configure(SessionOptions):
    type: Literal["configure"] = "configure"


class _Message(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Resume(_Message):
    """Go on with a session whose connection was lost; as the first message, or in the query instead of options."""

    type: Literal["resume"] = "resume"
    session: str = Field(max_length=64)
    resume_token: str = Field(max_length=64, description="from the `ready` message")
    last_event: int = Field(
        default=0, ge=0, le=MAX_EVENT, description="newest event received; those after it are sent"
    )
    channel_events: str = Field(
        default="",
        max_length=200,
        pattern=r"^(\d{1,16}(,\d{1,16})*)?$",
        description="with `multichannel`, in place of last_event: the newest event of each channel, by commas",
    )
    last_chunk: int = Field(
        default=0, ge=0, description="newest chunk that a pong has confirmed; for the log"
    )


class Flush(_Message):
    """Decode everything sent so far now; answered by a `flushed` event with the same id."""

    type: Literal["flush"] = "flush"
    id: str = Field(default="", max_length=64)


class EndOfAudio(_Message):
    """No more audio: the rest is decoded, the `end` event sent, the socket closed with 1000."""

    type: Literal["end"] = "end"


class Ping(_Message):
    type: Literal["ping"] = "ping"
    id: str = Field(default="", max_length=64)


ClientMessage = Annotated[Configure | Resume | Flush | EndOfAudio | Ping, Field(discriminator="type")]
CLIENT_ADAPTER: TypeAdapter[ClientMessage] = TypeAdapter(ClientMessage)


class Ready(_Message):
    """First message of the server: audio may be sent now (it may also have been sent before)."""

    type: Literal["ready"] = "ready"
    session: str = Field(description="names the transcript channel and the events stream")
    resume_token: str = Field(description="secret: proves that a reconnecting client owns the session")
    chunk_ms: int
    sample_rate: int
    encoding: Encoding
    channels: list[str] = Field(
        default_factory=list,
        description="with `multichannel`: the session of each channel; events name the one they are of",
    )
    resumed: bool = Field(default=False, description="whether this answers a resume")
    next_chunk: int = Field(default=1, description="number of the next chunk wanted; marks are numbered too")
    next_sample: int = Field(
        default=0,
        description="sample (of each channel, at sample_rate) to go on from; what came before is safe",
    )
    flushes: int = Field(default=0, description="flush messages already taken: do not send these again")
    ended: bool = Field(default=False, description="the end was taken: send nothing more")


class Pong(_Message):
    type: Literal["pong"] = "pong"
    id: str = ""
    chunk: int = Field(default=0, description="newest chunk that is safe with the fleet")
    sample: int = Field(default=0, description="audio before this sample need not be kept for a resume")


class Problem(_Message):
    """Told to a client before its session exists, or when its own messages are wrong."""

    type: Literal["problem"] = "problem"
    code: str
    message: str
    retryable: bool = False
    retry_after_s: float | None = Field(default=None, description="when trying again makes sense")


class Advice(_Message):
    """What a client probably does wrong. Nothing else happens: its session goes on."""

    type: Literal["warning"] = "warning"
    code: Literal["sample_rate"]
    message: str
    announced: int = Field(description="Hz")
    likely: int = Field(description="Hz; 48000 may be 44100")


ServerMessage = Annotated[Ready | Pong | Problem | Advice | TranscriptEvent, Field(discriminator="type")]
SERVER_ADAPTER: TypeAdapter[ServerMessage] = TypeAdapter(ServerMessage)
