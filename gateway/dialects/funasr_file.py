"""What a FunASR client is told about one recording."""

import json
from collections.abc import Iterator, Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from shared.events import Final, Partial, Word

_ENDS_CLAUSE = tuple(",.?!;:")
# FunASR's HTML5 page counts a time for each letter of what is not purely A-Z ("it's"), and fails when there are fewer.
_NO_TIMES = "h5"


class Config(BaseModel):
    """What counts of a config; the rest (chunk sizes, hot words, ITN, language) is ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True, coerce_numbers_to_str=True)

    mode: Literal["2pass", "online", "offline"] = "2pass"
    audio_fs: int = Field(default=16_000, ge=8_000, le=48_000)
    wav_name: str = Field(default="microphone", max_length=1_000)
    wav_format: str = Field(default="pcm", max_length=100)

    @field_validator("wav_format")
    @classmethod
    def _small(cls, value: str) -> str:
        return value.lower()  # the HTML5 page says PCM

    @property
    def raw(self) -> bool:
        """Samples, with a WAV header or without: clients differ. Anything else is a file of some other kind."""
        return self.wav_format in {"", "pcm", "wav"}


class File:
    """(partial, final)* ──> last

    Clients append fragments (`2pass-online`, `online`) to what they show, and drop those of a sentence when it comes whole
    (`2pass-offline`), which they append as well. So only stable text is sent in fragments, and blanks where they belong.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self.start_ms = 0
        self.ending = False
        self.acknowledge = False
        self._sent = ""  # of the open utterance, in fragments
        self._blank = ""  # before the next utterance
        # The newest result since the end was heard: it may be the last.
        self._held: dict[str, Any] | None = None
        self._finals: list[Final] = []  # kept for the end, in mode offline

    def partial(self, event: Partial) -> Sequence[str]:
        return () if self.config.mode == "offline" else self._fragment(event.text[: event.stable])

    def final(self, event: Final) -> Sequence[str]:
        if not event.text:
            return ()
        if self.config.mode == "offline":
            self._finals.append(event)
            return ()
        if self.config.mode == "online":
            results = self._fragment(event.text)
        else:
            results = self._result({"text": self._blank + event.text, **self._times([event])})
        self._sent, self._blank = "", " "
        return results

    def last(self, complaint: str) -> Sequence[str]:
        """The last result, which may be empty, and the acknowledgement of the end if it was asked for."""
        result = self._held or {}
        if self._finals:
            text = " ".join(final.text for final in self._finals)
            result = {"text": text, **self._times(self._finals)}
        error = {"error": complaint} if complaint else {}
        last = self._message(result | error, is_final=True)
        if not self.acknowledge:
            return (last,)
        return (last, self._message({"is_end": True, **error}, is_final=not complaint))

    def failed(self, why: str) -> str:
        """Clients wait for `is_final`; newer ones for the acknowledgement, whose `error` they show."""
        if self.acknowledge:
            return self._message({"is_end": True, "error": why}, is_final=False)
        return self._message({"error": why}, is_final=True)

    def _fragment(self, text: str) -> Sequence[str]:
        """What is new in an utterance's text so far."""
        new = text[len(self._sent) :]
        if not new:
            return ()
        blank = "" if self._sent else self._blank
        self._sent = text
        mode = "online" if self.config.mode == "online" else "2pass-online"
        return self._result({"mode": mode, "text": blank + new})

    def _result(self, fields: dict[str, Any]) -> Sequence[str]:
        results = [fields]
        if self.ending:
            results, self._held = [self._held] if self._held else [], fields
        return [self._message(each, is_final=False) for each in results]

    def _message(self, fields: dict[str, Any], *, is_final: bool) -> str:
        mode = "2pass-offline" if self.config.mode == "2pass" else self.config.mode
        shown = {"mode": mode, "text": "", "wav_name": self.config.wav_name, "is_final": is_final}
        return json.dumps(shown | fields, ensure_ascii=False)

    def _times(self, finals: Sequence[Final]) -> dict[str, Any]:
        words = [word for final in finals for word in final.words]
        if not words or self.config.wav_name == _NO_TIMES:
            return {}
        # In a string, as the C++ server has it: clients parse it.
        return {
            "timestamp": json.dumps([self._span(word) for word in words]),
            "stamp_sents": [self._clause(clause) for clause in _clauses(words)],
        }

    def _clause(self, words: Sequence[Word]) -> dict[str, Any]:
        text, spans = " ".join(word.text for word in words), [self._span(word) for word in words]
        ends = text.endswith(_ENDS_CLAUSE)
        return {
            "text_seg": text[:-1] if ends else text,
            "punc": text[-1] if ends else "",
            "start": spans[0][0],
            "end": spans[-1][1],
            "ts_list": spans,
        }

    def _span(self, word: Word) -> tuple[int, int]:
        return max(word.start_ms - self.start_ms, 0), max(word.end_ms - self.start_ms, 0)


def _clauses(words: Sequence[Word]) -> Iterator[Sequence[Word]]:
    """Cut after each word that ends with punctuation."""
    begin = 0
    for after, word in enumerate(words, 1):
        if word.text.endswith(_ENDS_CLAUSE) or after == len(words):
            yield words[begin:after]
            begin = after
