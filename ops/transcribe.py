"""`streamscribe transcribe`: files through the fleet, each its own session, several at once."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from ops.batch import Source, is_done, sources, targets, version, write
from ops.batch_bars import Bars
from ops.formats import Format, render
from ops.interrupt import at_interrupt
from ops.streaming import Heard, Recording, stream_pcm
from ops.tally import files
from ops.target import gateway_at
from shared.errors import (
    BadInput,
    Forbidden,
    Misconfigured,
    Overloaded,
    QuotaExceeded,
    RedisUnavailable,
    ScribeError,
    Unauthorized,
)
from shared.media import RATE, MediaDecoder
from shared.tasks import cancel

INTERRUPTED = 130
# What happens to one happens to all: the others are not tried.
_HOPELESS = (Unauthorized, Forbidden, QuotaExceeded, Misconfigured, RedisUnavailable)
# A gateway that is full says when to try again; a day's quota that is used up, too.
_WAIT_S = 60.0
_PATIENCE_S = 600.0


@dataclass(frozen=True, slots=True)
class Job:
    files: Sequence[Path]  # and folders
    form: Format = "text"
    output: Path | None = None  # folder; none: standard output
    again: bool = False  # also files that have a transcript already
    url: str | None = None
    key: str | None = None  # API key or token for the gateway
    pace: float = 0.0
    sessions: int = 2


def transcribe(job: Job, console: Console) -> int:
    """Do all files, tell on `console` how it goes, and return the exit code. Without a folder transcripts are printed, in order."""
    wanted = sources(job.files)
    where = targets(wanted, job.output, job.form) if job.output else {}
    done = {} if job.again else {file: target for file, target in where.items() if is_done(file, target)}
    todo = [source for source in wanted if source.file not in done]
    if done:
        going_on = ", going on" if todo else "; --again does them anew"
        console.print(f"{len(done)} of {files(len(wanted))} done already{going_on}", highlight=False)
    if not todo:
        return 0
    bars = Bars(console, {source.file: source.size for source in todo}, before=len(done))
    with MediaDecoder() as decoder:
        return asyncio.run(_Batch(job, todo, where, decoder, bars).run())


class _Batch:
    def __init__(
        self, job: Job, todo: Sequence[Source], where: dict[Path, Path], decoder: MediaDecoder, bars: Bars
    ) -> None:
        self._job = job
        self._todo = todo
        self._where = where
        self._decoder = decoder
        self._bars = bars
        self._free = asyncio.Semaphore(job.sessions)
        self._hopeless = False
        self._untried = 0

    async def run(self) -> int:
        work = asyncio.create_task(self._work())
        with at_interrupt(work.cancel):
            await asyncio.wait({work})
        if work.cancelled():
            self._bars.say(self._how_to_go_on())
            return INTERRUPTED
        work.result()
        self._bars.summary()
        if self._untried:
            self._bars.say(f"{files(self._untried)} not tried: it would be the same with each", style="red")
        return 1 if self._bars.tally.failed else 0

    async def _work(self) -> None:
        try:
            async with gateway_at(self._job.url) as url:
                with self._bars:
                    await self._all(url)
        except asyncio.CancelledError:
            self._decoder.abort()  # else its thread is waited for
            raise

    async def _all(self, url: str) -> None:
        tasks = [asyncio.create_task(self._in_turn(source, url)) for source in self._todo]
        try:
            for source, task in zip(self._todo, tasks, strict=True):
                transcript = await task
                if self._job.output is None and transcript is not None:
                    heading = f"==> {source.file} <==\n" if self._bars.of > 1 else ""
                    self._bars.out(heading + transcript)
        finally:
            await cancel(tasks)

    async def _in_turn(self, source: Source, url: str) -> str | None:
        """The transcript; None where there is none, which has been told."""
        async with self._free:
            if self._hopeless:
                self._untried += 1
                return None
            try:
                transcript = await self._one(source, url)
            except ScribeError as error:
                self._hopeless |= isinstance(error, _HOPELESS)
                told = str(error)
                self._bars.finished(
                    source.file, told if str(source.file) in told else f"{source.file}: {told}"
                )
                return None
            self._bars.finished(source.file)
            return transcript

    async def _one(self, source: Source, url: str) -> str:
        file = source.file
        if source.problem:
            raise BadInput(source.problem)
        before = version(file)
        pcm = await asyncio.to_thread(self._decoder.decode, file)
        self._bars.opened(file, len(pcm) / 2 / RATE)
        transcript = render((await self._heard(file, pcm, url)).finals, self._job.form)
        if file in self._where:
            if version(file) != before:
                raise BadInput("changed while it was read: transcribe it again when it is complete")
            await asyncio.to_thread(write, self._where[file], transcript)
        return transcript

    async def _heard(self, file: Path, pcm: bytes, url: str) -> Recording:
        """Of a gateway that has no room now is asked again."""

        def heard(new: Heard) -> None:
            self._bars.heard(file, new.event.through_ms / 1000)

        waited = 0.0
        while True:
            try:
                return await stream_pcm(url, pcm, key=self._job.key, pace=self._job.pace, on_event=heard)
            except (Overloaded, QuotaExceeded) as error:
                wait = error.retry_after_s
                if wait is None or wait > _WAIT_S or waited > _PATIENCE_S:
                    raise
            await asyncio.sleep(wait)
            waited += wait

    def _how_to_go_on(self) -> str:
        said = f"stopped: {self._bars.done} of {files(self._bars.of)} done"
        if self._job.output:
            return f"{said}; the same command goes on with the rest"
        return (
            f"{said}; with --output DIR the same command can be gone on with" if self._bars.of > 1 else said
        )
