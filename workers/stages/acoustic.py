"""The acoustic stage for encoder-decoder models: decides which stretches of audio to encode, and encodes them.

Theory. Such a model re-encodes the open utterance at every pass, and its quantised decoder gives slightly different
tokens for different calls, so a transcript would depend on how chunks happened to be grouped into passes.
Therefore passes come in three kinds, and only those at places fixed in audio time leave a trace:

- *anchor*: at multiples of 1.28 s of session audio inside the utterance, over the audio up to exactly there. Two
  successive anchors decide what is stable. Every worker, however late, makes every anchor.
- *final*: at the end of the utterance, with the utterances shortly before it as context.
- *partial*: whatever else has arrived, for display only. Skipped when the worker is behind.

The encoder sees [start, end) of the session's samples; silence that was never sent is zeros.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt

from shared.protocol import SessionOptions
from workers.stage import Step
from workers.stages import codec
from workers.stages.codec import Position
from workers.wire import SAMPLE_RATE, Closed, Encoded, EncodedItem, Opened, Speech, SpeechItem

F32 = npt.NDArray[np.float32]
F16 = npt.NDArray[np.float16]

ANCHOR = SAMPLE_RATE * 1280 // 1000
# Nothing is shown before there is 0.6 s of audio: less makes the model guess.
FIRST = SAMPLE_RATE * 600 // 1000
# A partial this close behind an anchor would say nothing new.
PARTIAL_AFTER_ANCHOR = SAMPLE_RATE * 240 // 1000
# Context of a final: how much audio in all, and across which pause (ops/decisions/0004).
CONTEXT = SAMPLE_RATE * 16
CONTEXT_PAUSE = SAMPLE_RATE * 3


class Encoder(Protocol):
    def encode(self, samples: F32) -> F16:
        """16 kHz samples -> hidden states [frames, width]."""
        ...


@dataclass(frozen=True, slots=True)
class AcousticState:
    utterance: int = 0
    speaking: bool = False
    start: int = 0  # of the open utterance
    through: int = 0  # audio has arrived up to here
    anchor: int = 0  # the next anchor
    # (start, end) of the utterances before this one that a final may use as context, newest last
    before: tuple[tuple[int, int], ...] = ()


class Acoustic:
    """Utterance audio in, encoder output out."""

    name = "acoustic"
    schema = 1

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder

    def initial(self, at: Position) -> AcousticState:
        return AcousticState(utterance=at.utterance, through=at.sample)

    def step(
        self,
        state: AcousticState,
        inputs: Sequence[tuple[SpeechItem, ...]],
        past: Sequence[tuple[SpeechItem, ...]],
        options: SessionOptions,
    ) -> Step[AcousticState, EncodedItem]:
        audio = _Audio([*past, *inputs])
        outputs: list[EncodedItem] = []
        for item in (item for entry in inputs for item in entry):
            if isinstance(item, Speech):
                state = self._speech(state, item, audio, options, outputs)
            elif isinstance(item, Opened):
                state = _opened(state, item)
                outputs.append(item)
            elif isinstance(item, Closed):
                outputs.append(self._final(state, item, audio))
                outputs.append(item)
                state = _closed(state, item)
            else:
                outputs.append(item)
        if options.partials and _worth_a_partial(state):
            # Before the last mark (Through), so that the event tells how far it looked.
            outputs.insert(len(outputs) - 1, self._encode(state, "partial", state.through, audio))
        return Step(state, outputs, needs=_needs(state, [*past, *inputs]))

    def dump(self, state: AcousticState) -> bytes:
        return codec.dump(self.schema, Position(state.through, state.utterance), state)

    def load(self, blob: bytes) -> AcousticState | Position:
        return codec.load(self.schema, AcousticState, blob)

    def _speech(
        self,
        state: AcousticState,
        item: Speech,
        audio: "_Audio",
        options: SessionOptions,
        out: list[EncodedItem],
    ) -> AcousticState:
        state = replace(state, through=item.start + len(item.pcm) // 2)
        while state.speaking and state.anchor <= state.through:
            if options.partials:
                out.append(self._encode(state, "anchor", state.anchor, audio))
            state = replace(state, anchor=state.anchor + ANCHOR)
        return state

    def _encode(self, state: AcousticState, kind: str, end: int, audio: "_Audio") -> Encoded:
        hidden = self._encoder.encode(audio.between(state.start, end))
        return Encoded(state.utterance, kind, 0, state.start, state.start, end, 0, hidden)

    def _final(self, state: AcousticState, item: Closed, audio: "_Audio") -> Encoded:
        start = state.before[0][0] if state.before else state.start
        hidden = self._encoder.encode(audio.between(start, item.end))
        return Encoded(
            state.utterance, "final", len(state.before), start, state.start, item.end, item.voiced, hidden
        )


class _Audio:
    """The session's samples that are at hand, addressed by absolute sample number."""

    def __init__(self, entries: Sequence[tuple[SpeechItem, ...]]) -> None:
        self._pieces = [item for entry in entries for item in entry if isinstance(item, Speech)]

    def between(self, start: int, end: int) -> F32:
        samples = np.zeros(end - start, np.float32)
        for piece in self._pieces:
            length = len(piece.pcm) // 2
            first, last = max(start, piece.start), min(end, piece.start + length)
            if first < last:
                raw = np.frombuffer(piece.pcm, "<i2", last - first, offset=2 * (first - piece.start))
                samples[first - start : last - start] = raw
        samples /= 32768
        return samples


def _opened(state: AcousticState, item: Opened) -> AcousticState:
    anchor = -(-(item.start + FIRST) // ANCHOR) * ANCHOR
    near = state.before and item.start - state.before[-1][1] <= CONTEXT_PAUSE
    before = state.before if near else ()
    return replace(
        state, utterance=item.utterance, speaking=True, start=item.start, anchor=anchor, before=before
    )


def _closed(state: AcousticState, item: Closed) -> AcousticState:
    """Remember the utterance as context, as long as with an equally long one after it the total stays in bounds."""
    before = [*state.before, (state.start, item.end)]
    while before and item.end - before[0][0] > CONTEXT:
        before.pop(0)
    return replace(state, speaking=False, before=tuple(before))


def _worth_a_partial(state: AcousticState) -> bool:
    if not state.speaking or state.through - state.start < FIRST:
        return False
    since = state.through - (state.anchor - ANCHOR)
    return since >= PARTIAL_AFTER_ANCHOR


def _needs(state: AcousticState, entries: Sequence[tuple[SpeechItem, ...]]) -> int:
    """Entries, from the newest back, that still hold audio of the open utterance or of its context."""
    first = state.before[0][0] if state.before else state.start if state.speaking else None
    if first is None:
        return 0
    for index, entry in enumerate(entries):
        if any(isinstance(item, Speech) and item.start + len(item.pcm) // 2 > first for item in entry):
            return len(entries) - index
    return 0
