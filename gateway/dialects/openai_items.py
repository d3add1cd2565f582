"""Which conversation item a transcript belongs to, and what an OpenAI client is told of it.

Audio is cut into items by the VAD, one for each utterance, or by the client's commits. A commit or a clear becomes a
flush of the core: what the core tells until that flush is answered was said before it.
"""

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from shared.events import Final, Flushed, Partial, SpeechStart, TranscriptEvent, Word

Message = dict[str, Any]

_TRANSCRIPTION = "conversation.item.input_audio_transcription"


@dataclass(slots=True)
class Item:
    """A message of the user, growing."""

    id: str
    text: str = ""  # all deltas so far
    words: list[Word] = field(default_factory=list)
    _shown: int = 0  # characters of the open utterance that are in `text`

    def extend(self, stable: str, *, last: bool = False) -> str:
        """Take an utterance's text as far as it is certain; returns what is new."""
        delta = stable[self._shown :]
        if delta and self.text and not self._shown:
            delta = f" {delta}"
        self.text += delta
        self._shown = 0 if last else len(stable)
        return delta


@dataclass(frozen=True, slots=True)
class _Mark:
    """A flush on its way. Without an item, what was said before it is nobody's."""

    flush_id: str
    item: Item | None
    seconds: float = 0.0


class Items:
    """One connection's items, from its first audio on."""

    def __init__(self, new_id: Callable[[], str], *, beta: bool) -> None:
        self.manual = False  # only the client ends items
        self.logprobs = False  # with `completed`
        self.taken_ms = 0.0  # audio up to here is in items already, or was cleared
        self._new_id = new_id
        self._beta = beta
        self._open: Item | None = None
        self._marks: deque[_Mark] = deque()
        self._marked = 0
        self._previous: str | None = None

    def commit(self, heard_ms: float) -> tuple[str, Sequence[Message]]:
        """Make an item of all audio so far. Returns the id to flush with, and what to say at once."""
        item = self._open or Item(self._new_id())
        flush_id = self._mark(heard_ms, item)
        return flush_id, self._committed(item)

    def clear(self, heard_ms: float) -> str:
        """Forget all audio that is in no item yet. Returns the id to flush with."""
        return self._mark(heard_ms, None)

    def tell(self, event: TranscriptEvent) -> Sequence[Message]:
        """What the client is told of an event."""
        match event:
            case SpeechStart() if not self.manual and not self._marks:
                self._open = self._open or Item(self._new_id())
                return [_started(self._open, event.start_ms)]
            case Partial() if item := self._current():
                return _delta(item, item.extend(event.text[: event.stable]))
            case Final() if item := self._current():
                return self._finished(item, event)
            case Flushed() if self._marks and self._marks[0].flush_id == event.flush_id:
                mark = self._marks.popleft()
                return [self._completed(mark.item, mark.seconds)] if mark.item else []
        return []

    def _mark(self, heard_ms: float, item: Item | None) -> str:
        self._marked += 1
        mark = _Mark(f"mark-{self._marked}", item, (heard_ms - self.taken_ms) / 1000)
        self._marks.append(mark)
        self._open, self.taken_ms = None, heard_ms
        return mark.flush_id

    def _current(self) -> Item | None:
        """The item that is being spoken; None: it was cleared."""
        if self._marks:
            return self._marks[0].item
        self._open = self._open or Item(self._new_id())
        return self._open

    def _finished(self, item: Item, final: Final) -> Sequence[Message]:
        delta = _delta(item, item.extend(final.text, last=True))
        item.words += final.words
        if self.manual or self._marks:
            return delta
        self._open = None
        self.taken_ms = max(self.taken_ms, final.end_ms)
        seconds = (final.end_ms - final.start_ms) / 1000
        stopped = {
            "type": "input_audio_buffer.speech_stopped",
            "item_id": item.id,
            "audio_end_ms": final.end_ms,
        }
        return [stopped, *self._committed(item), *delta, self._completed(item, seconds)]

    def _committed(self, item: Item) -> Sequence[Message]:
        before, self._previous = self._previous, item.id
        message = {
            "id": item.id,
            "object": "realtime.item",
            "type": "message",
            "status": "completed",
            "role": "user",
            "content": [{"type": "input_audio", "transcript": None}],
        }
        kinds = ["created"] if self._beta else ["added", "done"]
        return [
            {"type": "input_audio_buffer.committed", "item_id": item.id, "previous_item_id": before},
            *(
                {"type": f"conversation.item.{kind}", "previous_item_id": before, "item": message}
                for kind in kinds
            ),
        ]

    def _completed(self, item: Item, seconds: float) -> Message:
        said = {"logprobs": word_logprobs(item.text, item.words)} if self.logprobs else {}
        return {
            "type": f"{_TRANSCRIPTION}.completed",
            "item_id": item.id,
            "content_index": 0,
            "transcript": item.text,
            "usage": {"type": "duration", "seconds": round(seconds, 3)},
            **said,
        }


def _started(item: Item, start_ms: int) -> Message:
    return {"type": "input_audio_buffer.speech_started", "item_id": item.id, "audio_start_ms": start_ms}


def _delta(item: Item, text: str) -> Sequence[Message]:
    message = {"type": f"{_TRANSCRIPTION}.delta", "item_id": item.id, "content_index": 0, "delta": text}
    return [message] if text else []


def word_logprobs(text: str, words: Sequence[Word]) -> list[dict[str, Any]] | None:
    """Of words: our engine's tokens are not for clients. None where a word has no honest value."""
    tokens = [word.text if at == 0 else f" {word.text}" for at, word in enumerate(words)]
    if "".join(tokens) != text or not all(word.confidence for word in words):
        return None
    return [
        {"token": token, "bytes": list(token.encode()), "logprob": round(math.log(word.confidence or 1), 4)}
        for token, word in zip(tokens, words, strict=True)
    ]
