"""The command `streamscribe transcribe`."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from ops.options import Secret, Url, key_of

_STANDARD_INPUT = Path("-")

Files = Annotated[
    list[Path],
    typer.Argument(
        metavar="FILE...",
        help="Audio or video, any format FFmpeg reads; folders, with all below them; - for standard input.",
    ),
]
Output = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Write one file each, in folders as theirs; what is done already is left out. Default: print.",
    ),
]
Again = Annotated[
    bool, typer.Option("--again", help="Also files whose transcript in DIR is newer than they are.")
]
Raw = Annotated[
    int | None,
    typer.Option(
        metavar="HZ",
        min=8_000,
        max=48_000,
        help="Standard input has no header: 16-bit samples (s16le) of one channel at this rate.",
    ),
]
Pace = Annotated[float, typer.Option(min=0, help="1: as fast as it was spoken; 0: as fast as it goes.")]


def transcribe(
    files: Files,
    form: Annotated[Literal["text", "srt", "vtt", "jsonl"], typer.Option("--format")] = "text",
    output: Output = None,
    again: Again = False,
    raw: Raw = None,
    url: Url = None,
    key: Secret = None,
    pace: Pace = 0.0,
    sessions: Annotated[int, typer.Option(min=1, help="Files at the same time.")] = 2,
) -> None:
    """Transcribe files, folders or a pipe through the fleet.

    Exit code 1 if any failed, 130 after Ctrl-C. With --output the same command goes on where it was stopped.
    """
    from rich.console import Console

    from ops.transcribe import Job
    from ops.transcribe import transcribe as run

    console = Console(stderr=True)
    job = Job(files, form, output, again, url, key_of(key), pace, sessions)
    if _STANDARD_INPUT in files:
        from ops.piped import transcribe_input

        if len(files) > 1 or output or pace:
            raise typer.BadParameter("stands alone: without files, --output or --pace", param_hint="-")
        raise typer.Exit(transcribe_input(job, raw, console))
    if raw is not None:
        raise typer.BadParameter("is for standard input (-): give files a WAV header", param_hint="--raw")
    several = len(files) > 1 or any(file.is_dir() for file in files)
    if several and output is None and form != "text":
        raise typer.BadParameter(f"several files as {form} need a folder to go to", param_hint="--output")
    raise typer.Exit(run(job, console))
