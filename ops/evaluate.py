"""`streamscribe evaluate`: word errors, speed and latency over a list of recordings."""

import asyncio
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from pydantic import BaseModel, Field
from rich.console import Console

from ops import scoring
from ops.manifests import Take, continuous, read_manifest
from ops.progress import evaluation_bar
from ops.report import Outcome, Report, build_report, print_report, write_details
from ops.streaming import Heard, Recording, stream_pcm
from ops.target import gateway_at
from shared.errors import ScribeError
from shared.events import Final, Partial
from shared.media import RATE, MediaDecoder

BYTES_PER_S = RATE * 2
# Fast speech is 6 tokens per second; a model that repeats itself stops here.
TOKENS_PER_S = 10


class Plan(BaseModel):
    """What to run."""

    manifest: Path
    pattern: str = "*"
    limit: int | None = None
    url: str | None = Field(default=None, description="of a running gateway; none: start a fleet")
    key: str | None = Field(default=None, description="API key or token for the gateway", repr=False)
    offline: bool = Field(default=False, description="whole utterances through the model, without the fleet")
    pace: float = 1.0
    sessions: int = 1
    details: Path | None = Field(default=None, description="JSON lines: what was heard in each take")
    loop_s: float | None = Field(default=None, description="seconds of continuous speech in each session")


Progress = Callable[[Outcome], None]


def run(plan: Plan, *, as_json: bool) -> int:
    """Evaluate with progress on stderr, and print the report. The exit code says whether all recordings worked."""
    with MediaDecoder() as decoder:
        takes = plan_takes(plan, decoder)
        with evaluation_bar(Console(stderr=True), len(takes)) as progress:
            report = evaluate(plan, takes, decoder, progress)
    print(report.model_dump_json()) if as_json else print_report(report, Console())
    return 1 if report.errors else 0


def plan_takes(plan: Plan, decoder: MediaDecoder) -> list[Take]:
    """Read the manifest; with `loop_s`, join its recordings to one long take per session."""
    takes = read_manifest(plan.manifest, pattern=plan.pattern, limit=plan.limit)
    if plan.loop_s is None:
        return takes
    lengths = {take.name: len(_pcm(take, decoder)) / BYTES_PER_S for take in takes}
    return continuous(takes, sessions=plan.sessions, seconds=plan.loop_s, second_of=lengths)


def evaluate(plan: Plan, takes: Sequence[Take], decoder: MediaDecoder, progress: Progress) -> Report:
    """Run every take. One that fails is counted, and the others go on."""
    if plan.offline:
        outcomes, busy_s = _offline(takes, decoder, progress)
    else:
        outcomes, busy_s = asyncio.run(_through_fleet(plan, takes, decoder, progress))
    if plan.details is not None:
        write_details(plan.details, outcomes)
    return build_report(outcomes, sessions=1 if plan.offline else plan.sessions, busy_s=busy_s)


async def _through_fleet(
    plan: Plan, takes: Sequence[Take], decoder: MediaDecoder, progress: Progress
) -> tuple[list[Outcome], float]:
    outcomes: list[Outcome] = []
    queue = iter(takes)

    async def caller(n: int, url: str) -> None:
        # Callers do not dial in at the same instant: their chunks are spread over one chunk's time.
        await asyncio.sleep(n * 0.32 / plan.sessions)
        for take in queue:
            outcomes.append(await _one_session(plan, take, url, decoder))
            progress(outcomes[-1])

    async with gateway_at(plan.url) as url:
        began = time.monotonic()
        async with asyncio.TaskGroup() as callers:
            for n in range(plan.sessions):
                callers.create_task(caller(n, url))
        return outcomes, time.monotonic() - began


async def _one_session(plan: Plan, take: Take, url: str, decoder: MediaDecoder) -> Outcome:
    outcome = Outcome(take)
    try:
        pcm = await asyncio.to_thread(_pcm, take, decoder)
        outcome.audio_s = len(pcm) / BYTES_PER_S
        recording = await stream_pcm(url, pcm, key=plan.key, pace=plan.pace)
    except ScribeError as error:
        return _failed(outcome, error)
    outcome.text = recording.text
    outcome.score = scoring.score(take.reference, recording.text)
    outcome.latencies_ms = latencies(recording.heard)
    outcome.final_ms = _final_ms(recording)
    outcome.violations = scoring.stability_violations(h.event for h in recording.heard)
    return outcome


def latencies(heard: Sequence[Heard]) -> list[float]:
    """Per partial and final with a trace: from the chunk being complete at the gateway to the event's arrival."""
    return [
        h.arrived_ms - h.event.trace.received_ms
        for h in heard
        if isinstance(h.event, Partial | Final) and h.event.trace is not None
    ]


def _final_ms(recording: Recording) -> float | None:
    last = next((h for h in reversed(recording.heard) if isinstance(h.event, Final)), None)
    # A last final that came before the end of the audio says nothing about the wait for it.
    return (
        last.arrived_ms - recording.end_sent_ms if last and last.arrived_ms >= recording.end_sent_ms else None
    )


def _offline(takes: Sequence[Take], decoder: MediaDecoder, progress: Progress) -> tuple[list[Outcome], float]:
    """Each take in one piece through the model; the time is the model's alone, without decoding of files."""
    from workers.engines.moonshine.engine import MoonshineEngine  # noqa: PLC0415 - torch only where it is used

    engine = MoonshineEngine.load(threads=1)
    outcomes, busy_s = [], 0.0
    for take in takes:
        outcome = Outcome(take)
        try:
            pcm = _pcm(take, decoder)
        except ScribeError as error:
            outcomes.append(_failed(outcome, error))
            progress(outcome)
            continue
        outcome.audio_s = len(pcm) / BYTES_PER_S
        began = time.monotonic()
        samples = np.frombuffer(pcm, "<i2").astype(np.float32) / np.float32(32_768)
        limit = 16 + int(TOKENS_PER_S * outcome.audio_s)
        outcome.text = engine.vocabulary.text(engine.decode(engine.encode(samples), limit=limit).tokens)
        busy_s += time.monotonic() - began
        outcome.score = scoring.score(take.reference, outcome.text)
        outcomes.append(outcome)
        progress(outcome)
    return outcomes, busy_s


def _pcm(take: Take, decoder: MediaDecoder) -> bytes:
    return b"".join(decoder.decode(file) for file in take.files)


def _failed(outcome: Outcome, error: ScribeError) -> Outcome:
    """Count every word of it as missed: a failure must not improve the word error rate."""
    outcome.error = str(error)
    outcome.score = scoring.score(outcome.take.reference, "")
    return outcome
