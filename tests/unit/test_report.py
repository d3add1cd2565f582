"""From events to the figures of an evaluation."""

from pathlib import Path

import pytest

from ops.evaluate import latencies
from ops.manifests import Take
from ops.report import Outcome, build_report
from ops.scoring import Score
from ops.streaming import Heard
from shared.events import Final, Partial, SpeechEnd, Trace

TRACE = Trace(received_ms=1_000, committed_ms=1_030)


def take(name: str, subset: str, files: int = 1) -> Take:
    return Take(name, subset, (Path(name),) * files, "reference")


def test_latency_runs_from_the_complete_chunk_to_the_arrival_of_partials_and_finals_with_a_trace():
    said = {"session": "s", "utterance": 1, "text": "x", "stable": 0, "start_ms": 0, "end_ms": 1}
    heard = [
        Heard(Partial(**said, trace=TRACE), 1_040),
        Heard(Partial(**said), 1_050),
        Heard(SpeechEnd(session="s", utterance=1, end_ms=1, trace=TRACE), 1_060),
        Heard(Final(**said, trace=TRACE), 1_070),
    ]

    assert latencies(heard) == [40, 70]


def test_report_adds_up_takes_by_subset():
    outcomes = [
        Outcome(take("a/1", "a"), audio_s=10, score=Score(1, 10), latencies_ms=[10, 20], final_ms=50),
        Outcome(take("b/1", "b", files=2), audio_s=30, score=Score(0, 30), latencies_ms=[30], violations=2),
        Outcome(take("b/2", "b"), score=Score(10, 10, missing_at_end=10), error="broken"),
        Outcome(take("c/1", "c"), audio_s=10, text="you", score=Score(1, 0)),
    ]

    report = build_report(outcomes, sessions=2, busy_s=25)

    assert report.wer == pytest.approx(11 / 50)
    assert {name: subset.wer for name, subset in report.subsets.items()} == {"a": 0.1, "b": 0.25, "c": None}
    assert (report.utterances, report.audio_seconds, report.rtf, report.sessions) == (5, 50, 0.5, 2)
    assert (report.errors, report.stability_violations, report.words_without_reference) == (1, 2, 1)
    assert report.endings_lost == 1
    assert report.latency_ms.avg == 20
    assert report.final_ms.p50 == 50
