"""One pass, as a pure computation: what was loaded in, what is to be committed out. Runs in the inference thread.

A pass runs the taken stage and, while the next stage is served by this worker, idle and caught up, that one too on
the outputs just made: stages fuse by composition, and the hop through Redis falls away.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from shared.keys import STAGES
from shared.protocol import SessionOptions
from workers.pool import Hot
from workers.stage import Haste, Stage, Step
from workers.stages.codec import Position
from workers.wire import AudioChunk, pack, pack_items, unpack, unpack_items

AnyStage = Stage[Any, Any, Any]
Entries = list[tuple[int, Any]]  # (seq, input)


@dataclass(frozen=True, slots=True)
class Loaded:
    """One stage's part of a load script's reply."""

    seq: int
    fed: int
    token: str
    blob: bytes
    entries: Sequence[tuple[int, dict[bytes, bytes]]]  # (seq, fields)
    hot: Hot | None  # when the pool has this version

    @property
    def free(self) -> bool:
        """Nobody works on it and nothing waits: it may be fused."""
        return not self.token and self.seq == self.fed


@dataclass(frozen=True, slots=True)
class Link:
    """What a commit writes for one stage of the chain."""

    stage: str
    old_seq: int
    new_seq: int
    keep: int
    blob: bytes
    hot: Hot  # for the pool, once committed
    step_ms: float
    output: bytes = b""  # payload for the next stage; empty for none
    store: bool = False  # whether the next stage's input stream needs it


class Event(NamedTuple):
    body: str  # JSON, without its number
    # 0 a partial; 1 else: the n-th such event of a session is the same however often it is computed; 2 a gap that stands for
    # what Redis lost: it and all that follows is new, whatever was told of the lost audio
    lasts: int


@dataclass(frozen=True, slots=True)
class Result:
    links: tuple[Link, ...]
    events: tuple[Event, ...] = ()
    ended: bool = False
    reset: tuple[str, ...] = ()  # stages whose state had an unknown schema


@dataclass(slots=True)
class Hops:
    """The trace of the newest audio in this pass."""

    received_ms: float = 0.0
    hops: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Job:
    session: str
    options: SessionOptions
    stages: Sequence[AnyStage]  # the taken one, and those that may be fused behind it
    loaded: Sequence[Loaded]  # of each of them, maybe more
    wait_ms: float
    load_ms: float
    worker: str
    haste: Haste = Haste.NONE


def run_pass(job: Job, mono_ms: Callable[[], float], wall_ms: Callable[[], float]) -> Result | None:
    """Compute a pass. None when there is nothing to do. Clocks are only for the trace."""
    first = job.loaded[0]
    past, inputs = _inputs(job.stages[0], first)
    if not inputs:
        return None
    trace = _trace_of(first.entries[-1][1])
    links: list[Link] = []
    reset: list[str] = []
    outputs: Sequence[Any] = ()
    for stage, loaded in zip(job.stages, job.loaded, strict=False):
        if links:
            if not outputs or not loaded.free:
                break
            past, _ = _inputs(stage, loaded)
            inputs = [(links[-1].new_seq, tuple(outputs))]
        began = mono_ms()
        step = stage.step(
            _state(stage, loaded, reset), _values(inputs), _values(past), job.options, job.haste
        )
        took = mono_ms() - began
        if links:
            links[-1] = _onward(links[-1], outputs, trace, store=step.needs > 0)
        trace.hops.append(_hop(stage.name, job, first=not links, step_ms=took))
        links.append(_link(stage, loaded.seq, [*past, *inputs], step, took))
        outputs = step.outputs
    if outputs and links[-1].stage != STAGES[-1]:
        links[-1] = _onward(links[-1], outputs, trace, store=True)
        outputs = ()
    events, ended = _events(job.session, outputs, trace, wall_ms())
    return Result(tuple(links), events, ended, tuple(reset))


def _link(stage: AnyStage, old_seq: int, entries: Entries, step: Step[Any, Any], step_ms: float) -> Link:
    new_seq = entries[-1][0]
    kept = entries[len(entries) - step.needs :]
    keep = kept[0][0] if kept else new_seq + 1
    hot = Hot("", step.state, tuple(kept))
    return Link(stage.name, old_seq, new_seq, keep, stage.dump(step.state), hot, step_ms)


def _values(entries: Entries) -> list[Any]:
    return [value for _, value in entries]


def _inputs(stage: AnyStage, loaded: Loaded) -> tuple[Entries, Entries]:
    """(kept back and already done, new) inputs."""
    read = [(seq, _input(stage.name, fields)) for seq, fields in loaded.entries]
    known = list(loaded.hot.inputs) if loaded.hot else []
    entries = [*known, *read]
    return [e for e in entries if e[0] <= loaded.seq], [e for e in entries if e[0] > loaded.seq]


def _input(stage: str, fields: dict[bytes, bytes]) -> Any:
    if stage == "frontend":
        return AudioChunk(fields[b"k"].decode(), fields[b"p"])
    _, items = unpack(fields[b"p"])
    return unpack_items(items)


def _trace_of(fields: dict[bytes, bytes]) -> Hops:
    if b"k" in fields:
        return Hops(float(fields[b"t"]))
    (received, hops), _ = unpack(fields[b"p"])
    return Hops(received, list(hops))


def _state(stage: AnyStage, loaded: Loaded, reset: list[str]) -> Any:
    if loaded.hot:
        return loaded.hot.state
    if not loaded.blob:
        return stage.initial(Position())
    state = stage.load(loaded.blob)
    if isinstance(state, Position):
        reset.append(stage.name)
        return stage.initial(state)
    return state


def _onward(link: Link, outputs: Sequence[Any], trace: Hops, *, store: bool) -> Link:
    """With its output. What the next stage has already used and will not need again is only counted, not stored."""
    payload = pack(((trace.received_ms, trace.hops), pack_items(outputs))) if store else b"fused"
    return replace(link, output=payload, store=store)


def _hop(stage: str, job: Job, *, first: bool, step_ms: float) -> dict[str, Any]:
    """A fused stage behind the first has neither waited nor loaded anything."""
    wait, load = (job.wait_ms, job.load_ms) if first else (0.0, 0.0)
    times = {"wait_ms": round(wait, 2), "load_ms": round(load, 2), "step_ms": round(step_ms, 2)}
    return {"stage": stage, "worker": job.worker, **times}


def _events(
    session: str, outputs: Sequence[dict[str, Any]], trace: Hops, now_ms: float
) -> tuple[tuple[Event, ...], bool]:
    seen = {"received_ms": trace.received_ms, "committed_ms": round(now_ms, 2), "hops": trace.hops}
    common = {"v": 1, "session": session}
    made = [
        Event(json.dumps({**common, **event, "trace": seen}, ensure_ascii=False), _lasts(event))
        for event in outputs
    ]
    return tuple(made), any(event["type"] == "end" for event in outputs)


def _lasts(event: dict[str, Any]) -> int:
    return 2 if event.get("reason") == "redis_lost_data" else int(event["type"] != "partial")
