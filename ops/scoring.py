"""Word error rate with its uncertainty, latency percentiles, and whether stable text stayed."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import jiwer
import numpy as np
from pydantic import BaseModel

from shared.events import Final, Partial, TranscriptEvent

_RESAMPLES = 2_000  # the ends of a 95 % interval then move by about 1 % of its width between seeds
_SEED = 0


@dataclass(frozen=True, slots=True)
class Score:
    """Of one utterance: substitutions + deletions + insertions, and the reference's words."""

    errors: int
    words: int
    missing_at_end: int = 0  # reference words with nothing in their place, up to the last one


class Percentiles(BaseModel):
    """Milliseconds; null when nothing was measured."""

    avg: float | None = None
    p50: float | None = None
    p95: float | None = None
    p99: float | None = None


def score(reference: str, hypothesis: str) -> Score:
    """Compare words after Whisper's English normalisation (case, punctuation, numbers, contractions) of both."""
    normal, heard = _normalizer()(reference), _normalizer()(hypothesis)
    if not normal:  # jiwer takes no empty reference: every word heard is an insertion
        return Score(len(heard.split()), 0)
    found = jiwer.process_words(normal, heard)
    last = found.alignments[0][-1]
    missing = last.ref_end_idx - last.ref_start_idx if last.type == "delete" else 0
    return Score(found.substitutions + found.deletions + found.insertions, len(normal.split()), missing)


def wer(scores: Sequence[Score]) -> float | None:
    """All errors over all words, as a fraction; None without a reference word."""
    words = sum(s.words for s in scores)
    return sum(s.errors for s in scores) / words if words else None


def wer_interval(scores: Sequence[Score]) -> tuple[float, float] | None:
    """95 % bootstrap interval of the word error rate, by drawing utterances again with replacement."""
    counts = np.array([(s.errors, s.words) for s in scores]).reshape(-1, 2)
    if not counts[:, 1].sum():
        return None
    draws = np.random.default_rng(_SEED).integers(len(counts), size=(_RESAMPLES, len(counts)))
    errors, words = counts[draws].sum(axis=1).T
    low, high = np.percentile(errors[words > 0] / words[words > 0], [2.5, 97.5])
    return float(low), float(high)


def percentiles(values_ms: Sequence[float]) -> Percentiles:
    if not values_ms:
        return Percentiles()
    p50, p95, p99 = (round(float(p), 2) for p in np.percentile(values_ms, [50, 95, 99]))
    return Percentiles(avg=round(float(np.mean(values_ms)), 2), p50=p50, p95=p95, p99=p99)


def stability_violations(events: Iterable[TranscriptEvent]) -> int:
    """How many partials and finals changed text of their utterance that had been called stable."""
    stable: dict[int, str] = {}
    violations = 0
    for event in events:
        if isinstance(event, Partial | Final):
            violations += not event.text.startswith(stable.get(event.utterance, ""))
            stable[event.utterance] = event.text[: event.stable]
    return violations


@cache
def _normalizer() -> Any:
    # Takes a third of a second to build its tables.
    from whisper_normalizer.english import EnglishTextNormalizer  # noqa: PLC0415

    return EnglishTextNormalizer()
