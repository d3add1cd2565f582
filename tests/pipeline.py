"""The three stages in a row without Redis: what the fleet must be equal to."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from shared.protocol import SessionOptions
from workers.stage import Haste
from workers.stages.codec import Position
from workers.wire import AudioChunk


class Pipeline:
    """Feeds chunks through stages; `groups` says how many chunks each stage's step takes at once."""

    def __init__(self, stages: Sequence[Any], options: SessionOptions | None = None) -> None:
        self.options = options or SessionOptions()
        self.stages = stages
        self.states = [stage.initial(Position()) for stage in stages]
        self.past: list[list[Any]] = [[] for _ in stages]

    def feed(
        self, chunks: Sequence[AudioChunk], *, reload: bool = False, haste: Haste = Haste.NONE
    ) -> list[dict[str, Any]]:
        """One step per stage; with `reload` every state goes through its bytes, as between two workers."""
        items: Sequence[Any] = chunks
        for index, stage in enumerate(self.stages):
            if not items:
                return []
            inputs = list(items) if index == 0 else [tuple(items)]
            if reload:
                self.states[index] = stage.load(stage.dump(self.states[index]))
            step = stage.step(self.states[index], inputs, self.past[index], self.options, haste)
            self.states[index] = step.state
            entries = [*self.past[index], *inputs]
            self.past[index] = entries[len(entries) - step.needs :]
            items = step.outputs
        return list(items)

    def run(
        self,
        chunks: Sequence[AudioChunk],
        groups: Iterable[int],
        *,
        reload: bool = False,
        haste: Haste = Haste.NONE,
    ) -> list[dict[str, Any]]:
        """All events, the chunks taken in groups of the given sizes, the rest at once."""
        events, at = [], 0
        for size in groups:
            events += self.feed(chunks[at : at + size], reload=reload, haste=haste)
            at += size
        return events + (self.feed(chunks[at:], reload=reload, haste=haste) if at < len(chunks) else [])


def audio_chunks(samples: np.ndarray, chunk_samples: int = 5120) -> list[AudioChunk]:
    """int16 samples as chunks, closed by an end mark."""
    pieces = [samples[i : i + chunk_samples] for i in range(0, len(samples), chunk_samples)]
    return [*(AudioChunk("audio", piece.astype("<i2").tobytes()) for piece in pieces), AudioChunk("end", b"")]


def finals(events: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return [event for event in events if event["type"] == "final"]


def lasting(events: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Everything but partials: what must not depend on how chunks were grouped."""
    return [event for event in events if event["type"] != "partial"]
