"""`streamscribe transcribe`: files through the fleet, each its own session, several at once."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from ops.formats import Format, render
from ops.streaming import Heard, stream_pcm
from ops.target import gateway_at
from shared.errors import BadInput, ScribeError
from shared.media import RATE, MediaDecoder

_SUFFIX: dict[Format, str] = {"text": ".txt", "srt": ".srt", "vtt": ".vtt", "jsonl": ".jsonl"}


@dataclass(frozen=True, slots=True)
class Job:
    files: Sequence[Path]
    form: Format = "text"
    output: Path | None = None  # folder; none: standard output
    url: str | None = None
    key: str | None = None  # API key or token for the gateway
    pace: float = 0.0
    sessions: int = 2


@dataclass(slots=True)
class Result:
    file: Path
    transcript: str = ""
    error: str = ""


# file, seconds decoded so far, seconds in all
Progress = Callable[[Path, float, float], None]


def targets(job: Job) -> dict[Path, Path]:
    """Where each file's transcript goes. Raises BadInput when two would overwrite each other."""
    if job.output is None:
        return {}
    found: dict[Path, Path] = {}
    for file in job.files:
        target = job.output / (file.stem + _SUFFIX[job.form])
        if target in found.values():
            raise BadInput(f"two of the files would be written to {target}: give them to separate commands")
        found[file] = target
    return found


def transcribe(job: Job, progress: Progress) -> list[Result]:
    """Transcribe all files, in the order given. A file that fails is reported in its result; others go on."""
    write_to = targets(job)
    with MediaDecoder() as decoder:
        return asyncio.run(_transcribe(job, write_to, decoder, progress))


def print_results(job: Job, results: Sequence[Result], errors: Console) -> int:
    """Transcripts to standard output unless they went to a folder, a line per failure to `errors`; the exit code."""
    for result in results:
        if result.error:
            errors.print(f"error: {result.error}", style="red", markup=False, highlight=False, soft_wrap=True)
        elif job.output is None:
            heading = f"==> {result.file} <==\n" if len(results) > 1 else ""
            print(heading + result.transcript, end="")
    return 1 if any(result.error for result in results) else 0


async def _transcribe(
    job: Job, write_to: dict[Path, Path], decoder: MediaDecoder, progress: Progress
) -> list[Result]:
    free = asyncio.Semaphore(job.sessions)

    async def one(file: Path, url: str) -> Result:
        async with free:
            result = Result(file)
            try:
                result.transcript = await _one_file(job, file, url, decoder, progress)
                if file in write_to:
                    await asyncio.to_thread(_write, write_to[file], result.transcript)
            except ScribeError as error:
                result.error = str(error) if str(file) in str(error) else f"{file}: {error}"
            return result

    async with gateway_at(job.url) as url, asyncio.TaskGroup() as files:
        tasks = [files.create_task(one(file, url)) for file in job.files]
    return [task.result() for task in tasks]


async def _one_file(job: Job, file: Path, url: str, decoder: MediaDecoder, progress: Progress) -> str:
    pcm = await asyncio.to_thread(decoder.decode, file)
    seconds = len(pcm) / 2 / RATE

    def heard(new: Heard) -> None:
        progress(file, new.event.through_ms / 1000, seconds)

    recording = await stream_pcm(url, pcm, key=job.key, pace=job.pace, on_event=heard)
    progress(file, seconds, seconds)
    return render(recording.finals, job.form)


def _write(path: Path, transcript: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(transcript, encoding="utf-8")
    except OSError as error:
        raise BadInput(f"cannot write {path}: {error.strerror}") from error
