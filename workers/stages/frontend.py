"""The frontend: voice activity and endpointing. Silence goes no further."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt

from shared.protocol import SessionOptions
from workers.stage import Haste, Step
from workers.stages import codec, denoise
from workers.stages.codec import Position
from workers.stages.denoise import DenoiseState
from workers.stages.endpointing import (
    FRAME,
    ONSET_FRAMES,
    PREROLL,
    Close,
    Endpointer,
    Event,
    Open,
    Pause,
    Quiet,
)
from workers.wire import (
    AudioChunk,
    Closed,
    EndMark,
    FlushMark,
    GapMark,
    Opened,
    Paused,
    Resumed,
    Silent,
    Speech,
    SpeechItem,
    Through,
)

F32 = npt.NDArray[np.float32]

# Audio held while nobody speaks: the pre-roll, and the frames it takes to be sure.
HELD = PREROLL + ONSET_FRAMES * FRAME


@dataclass(frozen=True, slots=True)
class VadState:
    """Everything the detector keeps between two frames; the model itself keeps nothing."""

    hidden: F32 = field(default_factory=lambda: np.zeros((2, 1, 128), np.float32))
    context: F32 = field(default_factory=lambda: np.zeros((1, 64), np.float32))


class VoiceDetector(Protocol):
    def probability(self, state: VadState, frame: F32) -> tuple[float, VadState]:
        """Probability that 512 samples at 16 kHz hold speech, and the state after them."""
        ...


@dataclass(frozen=True, slots=True)
class FrontendState:
    vad: VadState = field(default_factory=VadState)
    endpointer: Endpointer = field(default_factory=Endpointer)
    utterance: int = 0  # the last one opened
    pending: bytes = b""  # less than a frame of samples not yet seen by the detector
    held: bytes = b""  # samples before endpointer.sample that an utterance may still reach back to
    sent: int = 0  # audio before this sample has gone to the acoustic stage
    cleaner: DenoiseState | None = None  # only with the option denoise


class Frontend:
    """Audio chunks in, utterances out."""

    name = "frontend"
    schema = 2

    def __init__(self, detector: VoiceDetector) -> None:
        self._detector = detector

    def initial(self, at: Position) -> FrontendState:
        return _fresh(at.sample, at.utterance)

    def step(
        self,
        state: FrontendState,
        inputs: Sequence[AudioChunk],
        past: Sequence[AudioChunk],  # noqa: ARG002
        options: SessionOptions,
        haste: Haste = Haste.NONE,  # noqa: ARG002
    ) -> Step[FrontendState, SpeechItem]:
        outputs: list[SpeechItem] = []
        for chunk in inputs:
            state, pcm = _cleaned(state, chunk) if options.denoise else (state, chunk.payload)
            if chunk.kind == "audio" or options.denoise:
                state = self._audio(state, pcm, options, outputs)
            if chunk.kind != "audio":
                state = self._mark(state, chunk, outputs)
        if outputs:
            outputs.append(Through(state.endpointer.sample + len(state.pending) // 2))
        return Step(state, outputs)

    def dump(self, state: FrontendState) -> bytes:
        return codec.dump(self.schema, Position(state.endpointer.sample, state.utterance), state)

    def load(self, blob: bytes) -> FrontendState | Position:
        return codec.load(self.schema, FrontendState, blob)

    def _audio(
        self, state: FrontendState, pcm: bytes, options: SessionOptions, out: list[SpeechItem]
    ) -> FrontendState:
        pcm = state.pending + pcm
        whole = len(pcm) // (2 * FRAME) * FRAME
        samples = np.frombuffer(pcm, "<i2", whole).astype(np.float32) / np.float32(32768)
        for i in range(0, whole, FRAME):
            state = self._frame(state, samples[i : i + FRAME], pcm[2 * i : 2 * (i + FRAME)], options, out)
        if state.endpointer.speaking:
            state = _send(state, state.endpointer.sample, out)
        return replace(state, pending=pcm[2 * whole :])

    def _frame(
        self, state: FrontendState, frame: F32, pcm: bytes, options: SessionOptions, out: list[SpeechItem]
    ) -> FrontendState:
        probability, vad = self._detector.probability(state.vad, frame)
        level = float(np.mean(frame * frame))
        frames = (-(-options.endpointing_ms // 32), -(-options.silence_ms // 32))
        endpointer, events = state.endpointer.frame(probability, level, *frames)
        state = replace(state, vad=vad, endpointer=endpointer, held=state.held + pcm)
        state = _tell(state, events, out)
        return state if endpointer.speaking else replace(state, held=state.held[-2 * HELD :])

    def _mark(self, state: FrontendState, chunk: AudioChunk, out: list[SpeechItem]) -> FrontendState:
        """Flush, gap or end: close the open utterance with all audio there is, even less than a frame."""
        end = state.endpointer.sample + len(state.pending) // 2
        endpointer, events = state.endpointer.close(end)
        whole = replace(state, endpointer=replace(endpointer, sample=end), held=state.held + state.pending)
        told = _tell(whole, events, out)
        if chunk.kind == "gap":
            first, next_one, reason, newest = chunk.payload.decode().split(":")
            after, utterance = int(next_one), max(told.utterance, int(newest))
            out.append(GapMark(int(first), after, reason))
            return _fresh(after, utterance)
        out.append(Through(end))  # told with the mark, whatever else is in this step
        out.append(FlushMark(chunk.payload.decode()) if chunk.kind == "flush" else EndMark(end))
        # The detector goes on in whole frames: the pending samples stay pending for it, but are sent already.
        return replace(told, endpointer=endpointer, held=state.held)


def _fresh(sample: int, utterance: int) -> FrontendState:
    """Nothing heard yet at this place of the session."""
    return FrontendState(
        endpointer=Endpointer(sample=sample, floor=sample, spoke=sample), utterance=utterance, sent=sample
    )


def _cleaned(state: FrontendState, chunk: AudioChunk) -> tuple[FrontendState, bytes]:
    """The chunk after noise reduction; at a mark, what noise reduction was still holding."""
    cleaner = state.cleaner or denoise.initial()
    if chunk.kind == "audio":
        samples = np.frombuffer(chunk.payload, "<i2").astype(np.float32) / np.float32(32768)
        cleaner, samples = denoise.denoise(cleaner, samples)
    else:
        cleaner, samples = denoise.flush(cleaner)
    pcm = np.clip(np.rint(samples * 32768), -32768, 32767).astype("<i2").tobytes()
    return replace(state, cleaner=cleaner), pcm


def _tell(state: FrontendState, events: Sequence[Event], out: list[SpeechItem]) -> FrontendState:
    """Pass the endpointer's events on, each after all audio before it."""
    for event in events:
        if isinstance(event, Open):
            state = replace(state, utterance=state.utterance + 1, sent=max(state.sent, event.start))
            out.append(Opened(state.utterance, event.start))
            continue
        if state.endpointer.speaking or not isinstance(event, Quiet):
            state = _send(state, state.endpointer.sample, out)
        if isinstance(event, Quiet):
            out.append(Silent(event.start, event.end))
        elif isinstance(event, Close):
            out.append(Closed(state.utterance, event.end, event.voiced))
        else:
            out.append(Paused(event.end, event.voiced) if isinstance(event, Pause) else Resumed(event.sample))
    return state


def _send(state: FrontendState, until: int, out: list[SpeechItem]) -> FrontendState:
    """Send held samples from `sent` up to `until`."""
    first = state.endpointer.sample - len(state.held) // 2
    start = max(state.sent, first)
    if start < until:
        out.append(Speech(start, state.held[2 * (start - first) : 2 * (until - first)]))
    return replace(state, sent=max(state.sent, until), held=state.held[-2 * HELD :])
