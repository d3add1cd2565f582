"""The acoustic stage for encoder-decoder models: decides which stretches of audio to encode, and encodes them.

Theory. Such a model re-encodes the open utterance at every pass, and its quantised decoder gives slightly different
tokens for different calls, so a transcript would depend on how chunks happened to be grouped into passes.
Therefore passes come in four kinds, and only those at places fixed in audio time leave a trace:

- *anchor*: at multiples of 1.28 s of session audio inside the utterance, pauses left out, over the audio up to
  exactly there. Successive anchors decide what is stable. A worker that is behind makes every anchor all the same;
  only one that has long had more work than it can do leaves them out (workers/overload.py), and text settles later.
- *final*: at the end of the utterance, with the utterances shortly before it as context.
- *prepared*: the final, computed at a pause in case the utterance ends there; if it does, it is there at once.
- *partial*: whatever else has arrived, for display only. Left out by a worker that is behind, and during a pause.

The encoder sees [start, end) of the session's samples; silence that was never sent is zeros.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt

from shared.protocol import SessionOptions
from workers.stage import Haste, Step
from workers.stages import codec
from workers.stages.codec import Position
from workers.stages.wordtimes import loudness
from workers.wire import (
    SAMPLE_RATE,
    Closed,
    Encoded,
    EncodedItem,
    Opened,
    Paused,
    Resumed,
    Speech,
    SpeechItem,
    SpeechMark,
)

F32 = npt.NDArray[np.float32]
F16 = npt.NDArray[np.float16]

ANCHOR = SAMPLE_RATE * 1280 // 1000
# Nothing is shown before there is 0.6 s of audio: less makes the model guess.
FIRST = SAMPLE_RATE * 600 // 1000
# Less audio than this is not worth keeping.
SHORTEST_CUT = SAMPLE_RATE
# A partial this close behind an anchor would say nothing new.
PARTIAL_AFTER_ANCHOR = SAMPLE_RATE * 240 // 1000
# A final looks back across pauses of up to 3 s, at most 6 s before its utterance; and half a second of silence
# behind it makes the model finish its sentence (ops/decisions/0004).
CONTEXT_PAUSE, CONTEXT = SAMPLE_RATE * 3, SAMPLE_RATE * 6
SILENCE = SAMPLE_RATE // 2


class Encoder(Protocol):
    # Samples. What begins at multiples of it in the session, in silence if need be, costs less the next time.
    grid: int

    def encode(self, samples: F32, *, cuts: Sequence[int] = ()) -> F16:
        """16 kHz samples -> hidden states [frames, width]. Audio before a cut need not be encoded again behind it."""
        ...


@dataclass(frozen=True, slots=True)
class AcousticState:
    utterance: int = 0
    speaking: bool = False
    start: int = 0  # of the open utterance
    through: int = 0  # audio has arrived up to here
    anchor: int = 0  # the next anchor
    paused: bool = False
    prepared: int = 0  # end of the utterance as last prepared; 0 for none
    # (start, end) of the utterances before this one that its final has as context, newest last
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
        haste: Haste = Haste.NONE,
    ) -> Step[AcousticState, EncodedItem]:
        entries = [*past, *inputs]
        audio = _Audio(entries)
        outputs: list[EncodedItem] = []
        items = [item for entry in inputs for item in entry]
        ahead = haste < Haste.FAR_BEHIND
        for index, item in enumerate(items):
            # A pause whose end has come meanwhile needs no preparing.
            settled = any(isinstance(later, Resumed | Closed) for later in items[index:])
            if isinstance(item, Speech):
                state = self._speech(state, item, audio, outputs, anchors=options.partials and ahead)
            else:
                state = self._mark(state, item, audio, outputs, prepare=ahead and not settled)
            if isinstance(item, Opened) and state.before and haste == Haste.NONE:
                # Nobody waits yet; the final, for which somebody will, finds its context encoded.
                self._hidden(audio, state.before[0][0], state.before[-1][1], cuts=[state.before[-1][1]])
        if options.partials and haste == Haste.NONE and _worth_a_partial(state):
            # Before the last mark (Through), so that the event tells how far it looked.
            outputs.insert(len(outputs) - 1, self._encode(state, "partial", state.through, audio))
        return Step(state, outputs, needs=_needs(state, entries))

    def dump(self, state: AcousticState) -> bytes:
        return codec.dump(self.schema, Position(state.through, state.utterance), state)

    def load(self, blob: bytes) -> AcousticState | Position:
        return codec.load(self.schema, AcousticState, blob)

    def _mark(
        self,
        state: AcousticState,
        item: SpeechMark,
        audio: "_Audio",
        out: list[EncodedItem],
        *,
        prepare: bool,
    ) -> AcousticState:
        if isinstance(item, Paused):
            if prepare:
                out.append(self._final(state, "prepared", item, audio))
            return replace(state, paused=True, prepared=item.end if prepare else 0)
        if isinstance(item, Closed) and item.end != state.prepared:
            out.append(self._final(state, "final", item, audio))
        out.append(item)
        if isinstance(item, Opened):
            return _opened(state, item)
        if isinstance(item, Resumed):
            anchor = max(state.anchor, _next_anchor(item.sample))
            return replace(state, paused=False, prepared=0, anchor=anchor)
        return _closed(state, item) if isinstance(item, Closed) else state

    def _speech(
        self,
        state: AcousticState,
        item: Speech,
        audio: "_Audio",
        out: list[EncodedItem],
        *,
        anchors: bool,
    ) -> AcousticState:
        state = replace(state, through=item.start + len(item.pcm) // 2)
        while state.speaking and not state.paused and state.anchor <= state.through:
            if anchors:
                out.append(self._encode(state, "anchor", state.anchor, audio))
            state = replace(state, anchor=state.anchor + ANCHOR)
        return state

    def _encode(self, state: AcousticState, kind: str, end: int, audio: "_Audio") -> Encoded:
        hidden = self._hidden(audio, state.start, end, cuts=range(_next_anchor(state.start), end + 1, ANCHOR))
        return Encoded(state.utterance, kind, 0, state.start, state.start, end, 0, b"", hidden)

    def _final(self, state: AcousticState, kind: str, item: Paused | Closed, audio: "_Audio") -> Encoded:
        before = state.before or ((state.start, state.start),)
        start, heard = before[0][0], before[-1][1]
        profile = loudness(audio.between(state.start, item.end))
        hidden = self._hidden(audio, start, item.end, cuts=[heard], silence=SILENCE)
        context = len(state.before)
        return Encoded(
            state.utterance, kind, context, start, state.start, item.end, item.voiced, profile, hidden
        )

    def _hidden(self, audio: "_Audio", start: int, end: int, *, cuts: Sequence[int], silence: int = 0) -> F16:
        """Encode [start, end) and so much silence; cuts are places in the session like the others."""
        before = start % self._encoder.grid
        samples = np.pad(audio.between(start, end), (before, silence))
        places = [cut + before - start for cut in cuts]
        return self._encoder.encode(samples, cuts=[cut for cut in places if cut >= SHORTEST_CUT])


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


def _next_anchor(sample: int) -> int:
    return -(-sample // ANCHOR) * ANCHOR


def _opened(state: AcousticState, item: Opened) -> AcousticState:
    near = state.before and item.start - state.before[-1][1] <= CONTEXT_PAUSE
    return replace(
        state,
        utterance=item.utterance,
        speaking=True,
        start=item.start,
        anchor=_next_anchor(item.start + FIRST),
        before=tuple(span for span in state.before if item.start - span[0] <= CONTEXT) if near else (),
    )


def _closed(state: AcousticState, item: Closed) -> AcousticState:
    spans = [*state.before, (state.start, item.end)]
    before = tuple(span for span in spans if item.end - span[0] <= CONTEXT)
    return replace(state, speaking=False, paused=False, prepared=0, before=before)


def _worth_a_partial(state: AcousticState) -> bool:
    if not state.speaking or state.paused or state.through - state.start < FIRST:
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
