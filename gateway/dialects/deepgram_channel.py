"""What a Deepgram client is told of one channel.

Theory. Successive final results tile the channel's timeline: a result's window begins where the last final one's ended. An
utterance's final ends at its end. Silence is told by an empty final, but only so far as no utterance can reach back into it.
A Finalize is always answered by a result with `from_finalize`: the final of the utterance it closed, or an empty one. Which
it is, is known by the next event; therefore a final that comes while a Finalize is out waits for it.
"""

from collections.abc import Sequence

from gateway.dialects import deepgram_shapes as shapes
from gateway.dialects.deepgram_query import Asked
from gateway.dialects.deepgram_shapes import Shape, seconds
from shared.events import (
    End,
    Final,
    Flushed,
    Partial,
    Silence,
    SpeechEnd,
    SpeechStart,
    TranscriptEvent,
)

# Farther than an utterance reaches back before the frame in which it is noticed.
_REACH_BACK_MS = 500


class Channel:
    """Translates its events, in order."""

    def __init__(self, asked: Asked, request_id: str, index: int) -> None:
        self._asked = asked
        self._place = [index, asked.transcripts]
        self._flushes = ("", str(index))  # ids of those that are meant for this channel
        self._metadata = {
            "request_id": request_id,
            "model_info": shapes.model_info(asked.model),
            "model_uuid": shapes.MODEL_UUID,
        }
        self._told_ms = 0  # end of the last final result
        self._speaking = False
        self._word_end_ms: int | None = None  # of the newest word that no UtteranceEnd has followed
        self._finalizing = 0  # Finalize messages not answered yet
        self._waiting: Final | None = None  # until it is known whether a Finalize has closed it

    def finalize(self) -> None:
        """A Finalize has been heard."""
        self._finalizing += 1

    def tell(self, event: TranscriptEvent) -> Sequence[Shape]:
        if isinstance(event, SpeechEnd):
            self._speaking = False
            return ()
        if isinstance(event, Flushed):
            return self._flushed(event)
        return [*self._release(), *self._tell(event)]

    def _tell(self, event: TranscriptEvent) -> Sequence[Shape]:
        if isinstance(event, Partial):
            return self._interim(event)
        if isinstance(event, Final):
            return self._final(event)
        if isinstance(event, SpeechStart):
            return self._started(event)
        if isinstance(event, Silence):
            return self._silence(event)
        if isinstance(event, End):
            return [self._empty(event.audio_ms)] if event.audio_ms > self._told_ms else []
        return ()

    def _interim(self, event: Partial) -> Sequence[Shape]:
        if event.text:
            self._word_end_ms = event.end_ms
        return [self._results(event.end_ms, shapes.partial(event), is_final=False)]

    def _final(self, event: Final) -> Sequence[Shape]:
        if event.words:
            self._word_end_ms = event.words[-1].end_ms
        self._waiting = event
        return () if self._finalizing else self._release()

    def _release(self, *, from_finalize: bool = False) -> Sequence[Shape]:
        """The final that waited, if one did. Deepgram, too, says speech_final where a Finalize has cut speech off."""
        event, self._waiting = self._waiting, None
        if event is None:
            return ()
        told = {"speech_final": True, "from_finalize": from_finalize}
        return [self._results(event.end_ms, shapes.final(event), **told)]

    def _started(self, event: SpeechStart) -> Sequence[Shape]:
        self._speaking = True
        if not self._asked.vad_events:
            return ()
        return [{"type": "SpeechStarted", "channel": self._place, "timestamp": seconds(event.start_ms)}]

    def _silence(self, event: Silence) -> Sequence[Shape]:
        until_ms, told = event.end_ms - _REACH_BACK_MS, []
        if not self._speaking and until_ms > self._told_ms:
            told.append(self._empty(until_ms))
        if self._asked.utterance_end and self._word_end_ms is not None:
            # In an utterance that is still open the newest word is an interim one, whose end is not known.
            end_ms = min(self._word_end_ms, event.start_ms) if self._speaking else self._word_end_ms
            told.append({"type": "UtteranceEnd", "channel": self._place, "last_word_end": seconds(end_ms)})
            self._word_end_ms = None
        return told

    def _flushed(self, event: Flushed) -> Sequence[Shape]:
        self._finalizing -= 1
        if event.flush_id not in self._flushes:
            return self._release()
        return self._release(from_finalize=True) or [self._empty(event.through_ms, from_finalize=True)]

    def _empty(self, until_ms: int, *, from_finalize: bool = False) -> Shape:
        """Nothing was said up to here."""
        return self._results(until_ms, shapes.alternative("", 0.0, []), from_finalize=from_finalize)

    def _results(
        self,
        until_ms: int,
        alternative: Shape,
        *,
        is_final: bool = True,
        speech_final: bool = False,
        from_finalize: bool = False,
    ) -> Shape:
        start_ms, until_ms = self._told_ms, max(until_ms, self._told_ms)
        if is_final:
            self._told_ms = until_ms
        return {
            "type": "Results",
            "channel_index": self._place,
            "start": seconds(start_ms),
            "duration": seconds(until_ms - start_ms),
            "is_final": is_final,
            "speech_final": speech_final,
            "from_finalize": from_finalize,
            "channel": {"alternatives": [alternative]},
            "metadata": self._metadata,
        }
