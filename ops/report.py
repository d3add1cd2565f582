"""The figures of an evaluation, as one JSON object and as tables."""

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import BaseModel, Field
from rich.console import Console
from rich.table import Table

from ops import scoring
from ops.manifests import Take
from shared.errors import BadInput


@dataclass(slots=True)
class Outcome:
    """What became of one take."""

    take: Take
    audio_s: float = 0.0
    text: str = ""
    score: scoring.Score = field(default_factory=lambda: scoring.Score(0, 0))
    latencies_ms: list[float] = field(default_factory=list)
    final_ms: float | None = None
    violations: int = 0
    error: str = ""


class Subset(BaseModel):
    wer: float | None
    utterances: int
    words: int


class Report(BaseModel):
    """What `--json` prints. Rates are fractions, times milliseconds."""

    wer: float | None
    wer_ci95: tuple[float, float] | None
    utterances: int
    audio_seconds: float
    rtf: float = Field(
        description="wall time (offline: computing time) per second of audio, all sessions together"
    )
    sessions: int
    latency_ms: scoring.Percentiles = Field(
        description="chunk complete at the gateway to its event at the client"
    )
    final_ms: scoring.Percentiles = Field(description="last audio sent to last final received")
    errors: int = Field(description="sessions that failed or got no `end` event")
    stability_violations: int
    endings_lost: int = Field(description="recordings without their last word or words")
    words_without_reference: int = Field(description="heard in recordings whose transcript is empty")
    subsets: dict[str, Subset]


def build_report(outcomes: Sequence[Outcome], *, sessions: int, busy_s: float) -> Report:
    by_subset: dict[str, list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        by_subset[outcome.take.subset].append(outcome)
    scored = _scored(outcomes)
    audio_s = sum(outcome.audio_s for outcome in outcomes)
    return Report(
        wer=scoring.wer(scored),
        wer_ci95=scoring.wer_interval(scored),
        utterances=_utterances(outcomes),
        audio_seconds=round(audio_s, 3),
        rtf=round(busy_s / audio_s, 5) if audio_s else 0.0,
        sessions=sessions,
        latency_ms=scoring.percentiles([ms for outcome in outcomes for ms in outcome.latencies_ms]),
        final_ms=scoring.percentiles([o.final_ms for o in outcomes if o.final_ms is not None]),
        errors=sum(bool(outcome.error) for outcome in outcomes),
        stability_violations=sum(outcome.violations for outcome in outcomes),
        endings_lost=sum(outcome.score.missing_at_end > 0 for outcome in outcomes),
        words_without_reference=sum(o.score.errors for o in outcomes if not o.score.words),
        subsets={name: _subset(members) for name, members in sorted(by_subset.items())},
    )


def write_details(path: Path, outcomes: Sequence[Outcome]) -> None:
    """One JSON line per take, worst first: where the errors are. Raises BadInput when it cannot be written."""
    worst_first = sorted(outcomes, key=lambda outcome: -outcome.score.errors)
    lines = [
        json.dumps(
            {
                "take": outcome.take.name,
                "errors": outcome.score.errors,
                "words": outcome.score.words,
                "missing_at_end": outcome.score.missing_at_end,
                "reference": outcome.take.reference,
                "heard": outcome.text,
                "error": outcome.error,
            },
            ensure_ascii=False,
        )
        for outcome in worst_first
    ]
    try:
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    except OSError as error:
        raise BadInput(f"cannot write {path}: {error.strerror}") from error


def print_report(report: Report, console: Console) -> None:
    rates = Table(title="Word error rate", title_justify="left")
    for column in ("subset", "utterances", "words", "WER"):
        rates.add_column(column, justify="left" if column == "subset" else "right")
    for name, subset in report.subsets.items():
        rates.add_row(name, str(subset.utterances), str(subset.words), _percent(subset.wer))
    interval = f" [{_percent(report.wer_ci95[0])}, {_percent(report.wer_ci95[1])}]" if report.wer_ci95 else ""
    words = sum(subset.words for subset in report.subsets.values())
    rates.add_section()
    rates.add_row("all", str(report.utterances), str(words), _percent(report.wer) + interval)
    console.print(rates)
    console.print(
        latency_table({"event latency": report.latency_ms, "end of audio to last final": report.final_ms})
    )
    console.print(
        f"{report.audio_seconds:.1f} s of audio in {report.sessions} session(s) at a time, "
        f"real-time factor {report.rtf:.4f}; {report.errors} failed, "
        f"{report.stability_violations} changes of stable text, {report.endings_lost} endings lost, "
        f"{report.words_without_reference} words where no transcript has any"
    )


def latency_table(rows: dict[str, scoring.Percentiles]) -> Table:
    table = Table(title="Latency in ms", title_justify="left")
    table.add_column("")
    for column in ("avg", "p50", "p95", "p99"):
        table.add_column(column, justify="right")
    for name, row in rows.items():
        table.add_row(name, *(("-" if ms is None else f"{ms:.1f}") for ms in row.model_dump().values()))
    return table


def _scored(outcomes: Iterable[Outcome]) -> list[scoring.Score]:
    return [outcome.score for outcome in outcomes if outcome.score.words]


def _utterances(outcomes: Iterable[Outcome]) -> int:
    return sum(len(outcome.take.files) for outcome in outcomes)


def _subset(members: Sequence[Outcome]) -> Subset:
    scored = _scored(members)
    return Subset(
        wer=scoring.wer(scored), utterances=_utterances(members), words=sum(s.words for s in scored)
    )


def _percent(fraction: float | None) -> str:
    return "-" if fraction is None else f"{100 * fraction:.2f} %"
