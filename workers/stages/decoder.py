"""The decoder stage: hypotheses, what of them is stable, and the transcript events.

Theory. `promised` are tokens that will not change within the utterance: where three successive anchors agree. Anchors
and the final are forced to begin with them, and verify as a guess only what an earlier anchor said: both are
fixed in audio time, so the final is the same whatever partials were made in between, by whom.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from shared.protocol import SessionOptions
from workers.stage import Haste, Step
from workers.stages import codec, finals
from workers.stages.codec import Position
from workers.stages.transcript import (
    Searcher,
    Vocabulary,
    limit,
    sketch_limit,
    stable_prefix,
    without_loops,
    words_of,
)
from workers.stages.wordtimes import spans
from workers.wire import (
    SAMPLE_RATE,
    Closed,
    Encoded,
    EncodedItem,
    EndMark,
    FlushMark,
    GapMark,
    Opened,
    Resumed,
    Silent,
    Through,
)

Event = dict[str, Any]  # a shared.events event without session, number and trace

# Anchors that must agree on what is stable.
AGREEING = 3
# More utterances than this do not fit into a final's context.
CONTEXT_UTTERANCES = 16
# Less voiced audio than this holds no word (ops/decisions/0005).
MIN_VOICED = SAMPLE_RATE * 96 // 1000


@dataclass(frozen=True, slots=True)
class DecoderState:
    utterance: int = 0
    start: int = 0  # sample
    through: int = 0  # sample decoded so far
    anchor: tuple[int, ...] = ()  # tokens of the last anchor
    older: tuple[tuple[int, ...], ...] = ()  # of the anchors before it, as far as stability looks back
    promised: int = 0  # of them, how many are stable
    # tokens of the last pass of any kind, and the sample it looked up to: a guess for the next partial, never truth
    latest: tuple[int, ...] = ()
    latest_end: int = 0
    # a final computed at a pause, told if the utterance ends there: its event (JSON) and tokens
    prepared: str = ""
    prepared_tokens: tuple[int, ...] = ()
    # tokens of the utterances before this one, newest last: the context of a final
    before: tuple[tuple[int, ...], ...] = ()
    speech: int = 0  # samples in closed utterances
    utterances: int = 0


class Decoder:
    """Encoder output in, transcript events out."""

    name = "decoder"
    schema = 2

    def __init__(self, searcher: Searcher, vocabulary: Vocabulary) -> None:
        self._searcher = searcher
        self._vocabulary = vocabulary

    def initial(self, at: Position) -> DecoderState:
        return DecoderState(utterance=at.utterance, through=at.sample, utterances=at.utterance)

    def step(
        self,
        state: DecoderState,
        inputs: Sequence[tuple[EncodedItem, ...]],
        past: Sequence[tuple[EncodedItem, ...]],  # noqa: ARG002
        options: SessionOptions,
        haste: Haste = Haste.NONE,  # noqa: ARG002
    ) -> Step[DecoderState, Event]:
        events: list[Event] = []
        for item in (item for entry in inputs for item in entry):
            state = self._item(state, item, events)
        wanted = [event for event in events if options.partials or event["type"] != "partial"]
        return Step(state, wanted)

    def dump(self, state: DecoderState) -> bytes:
        return codec.dump(self.schema, Position(state.through, state.utterance), state)

    def load(self, blob: bytes) -> DecoderState | Position:
        return codec.load(self.schema, DecoderState, blob)

    def _item(self, state: DecoderState, item: EncodedItem, out: list[Event]) -> DecoderState:
        if isinstance(item, Encoded):
            return self._encoded(state, item, out)
        if isinstance(item, Opened):
            begun = {"type": "speech_start", "utterance": item.utterance, "start_ms": _ms(item.start)}
            out.append(_at(item.start, begun))
            return replace(
                state, utterance=item.utterance, start=item.start, anchor=(), older=(), promised=0, latest=()
            )
        if isinstance(item, Closed):
            return _closed(state, item, out)
        if isinstance(item, Resumed):
            return replace(state, prepared="", prepared_tokens=())
        if isinstance(item, Through):
            return replace(state, through=max(state.through, item.sample))
        event, through = _mark(state, item)
        out.append(_at(through, event))
        return replace(state, through=through)

    def _encoded(self, state: DecoderState, item: Encoded, out: list[Event]) -> DecoderState:
        state = replace(state, through=max(state.through, item.end))
        if item.kind in ("final", "prepared"):
            return self._final(state, item)
        promised = state.anchor[: state.promised]
        shown_only, length = item.kind == "partial", item.end - item.start
        if shown_only:
            earlier, most = state.latest, sketch_limit(len(state.latest), item.end - state.latest_end, length)
        else:
            earlier, most = state.anchor, limit(length)
        guess = earlier[state.promised :]
        found = self._searcher.decode(
            item.hidden, forced=promised, guess=guess, limit=most, sketch=shown_only
        )
        tokens = max(without_loops(found.tokens), promised, key=len)
        if not shown_only:
            state = self._promise(state, tokens)
        out.append(self._partial(state, tokens, item.end))
        return replace(state, latest=tokens, latest_end=item.end)

    def _promise(self, state: DecoderState, tokens: tuple[int, ...]) -> DecoderState:
        hypotheses = (*state.older, state.anchor, tokens)[-AGREEING:]
        agreed = stable_prefix(self._vocabulary, hypotheses) if len(hypotheses) == AGREEING else 0
        return replace(
            state, anchor=tokens, older=hypotheses[1 - AGREEING : -1], promised=max(state.promised, agreed)
        )

    def _partial(self, state: DecoderState, tokens: tuple[int, ...], end: int) -> Event:
        return _at(
            end,
            {
                "type": "partial",
                "utterance": state.utterance,
                "text": self._vocabulary.text(tokens),
                "stable": len(self._vocabulary.text(tokens[: state.promised])),
                "start_ms": _ms(state.start),
                "end_ms": _ms(end),
            },
        )

    def _final(self, state: DecoderState, item: Encoded) -> DecoderState:
        """Decode the utterance for good; told when it is closed. A pause says nothing new, so no partial shows it."""
        context = [t for tokens in state.before[len(state.before) - item.context :] for t in tokens]
        promised = state.anchor[: state.promised]
        length = item.end - item.utterance_start
        given = {"context": context, "promised": promised, "guess": state.anchor}
        found = finals.decode(self._searcher, self._vocabulary, item.hidden, length, **given)
        if item.voiced < MIN_VOICED and not promised:
            found = finals.Found((), ())
        tokens = found.tokens
        event = self._final_event(state, item, tokens, found.logprobs)
        return replace(
            state, prepared=json.dumps(event), prepared_tokens=tokens, latest=tokens, latest_end=item.end
        )

    def _final_event(
        self, state: DecoderState, item: Encoded, tokens: tuple[int, ...], logprobs: tuple[float, ...]
    ) -> Event:
        text = self._vocabulary.text(tokens)
        return _at(
            item.end,
            {
                "type": "final",
                "utterance": state.utterance,
                "text": text,
                "stable": len(text),
                "start_ms": _ms(item.utterance_start),
                "end_ms": _ms(item.end),
                "confidence": _confidence(logprobs[: len(tokens)]),
                "words": self._words(tokens, logprobs, item),
                "word_times": "estimated",
            },
        )

    def _words(self, tokens: tuple[int, ...], logprobs: tuple[float, ...], item: Encoded) -> list[Event]:
        words = words_of(self._vocabulary, tokens)
        texts = [self._vocabulary.text(tokens[a:b]) for a, b in words]
        times = spans([len(text) for text in texts], item.loudness)
        return [
            {
                "text": text,
                "start_ms": _ms(item.utterance_start + start),
                "end_ms": _ms(item.utterance_start + end),
                "confidence": _confidence(logprobs[a:b]),
            }
            for text, (a, b), (start, end) in zip(texts, words, times, strict=True)
        ]


def _closed(state: DecoderState, item: Closed, out: list[Event]) -> DecoderState:
    if state.prepared:  # else this state was started anew in the middle of the utterance
        out.append(json.loads(state.prepared))
    out.append(_at(item.end, {"type": "speech_end", "utterance": item.utterance, "end_ms": _ms(item.end)}))
    return replace(
        state,
        before=(*state.before, state.prepared_tokens)[-CONTEXT_UTTERANCES:],
        speech=state.speech + item.end - state.start,
        utterances=state.utterances + 1,
        prepared="",
        prepared_tokens=(),
    )


def _mark(state: DecoderState, item: Silent | GapMark | FlushMark | EndMark) -> tuple[Event, int]:
    """The event of a mark, and the sample the session has got to."""
    if isinstance(item, FlushMark):
        return {"type": "flushed", "flush_id": item.flush_id}, state.through
    if isinstance(item, Silent):
        return {"type": "silence", "start_ms": _ms(item.start), "end_ms": _ms(item.end)}, item.end
    if isinstance(item, GapMark):
        lost = {"start_ms": _ms(item.start), "end_ms": _ms(item.end), "reason": item.reason}
        return {"type": "gap", **lost}, item.end
    totals = {"audio_ms": _ms(item.samples), "speech_ms": _ms(state.speech), "utterances": state.utterances}
    return {"type": "end", **totals}, item.samples


def _at(sample: int, event: Event) -> Event:
    return {**event, "through_ms": _ms(sample)}


def _ms(sample: int) -> int:
    return sample * 1000 // SAMPLE_RATE


def _confidence(logprobs: Sequence[float]) -> float | None:
    """Geometric mean of the tokens' probabilities; None without tokens."""
    return round(math.exp(sum(logprobs) / len(logprobs)), 3) if logprobs else None
