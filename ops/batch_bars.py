"""How a batch goes, on standard error: bars on a terminal, elsewhere a line for each file; a summary at the end."""

import sys
from pathlib import Path
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.table import Column

from ops.tally import Tally, duration, files, speed
from shared.clock import mono_ms

_NAME_CHARS = 28


class Bars:
    """Use it as a context while files are in work: `opened`, `heard`, `finished`, in this order for each."""

    def __init__(self, console: Console, sizes: dict[Path, int], *, before: int = 0) -> None:
        """`before`: how many files were done by earlier runs; they count as files, but not as audio."""
        self.tally = Tally(sizes)
        self._console = console
        self._before = before
        self._of = before + len(sizes)
        self._began_ms = mono_ms()
        self._opened_ms: dict[Path, float] = {}
        self._seconds: dict[Path, float] = {}
        self._tasks: dict[Path, TaskID] = {}
        self._live = console.is_interactive
        self._progress = Progress(
            TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True)),
            BarColumn(bar_width=None, table_column=Column(ratio=1, min_width=8)),
            TextColumn("{task.fields[audio]}", justify="right", table_column=Column(no_wrap=True)),
            TextColumn("{task.fields[speed]}", style="cyan", table_column=Column(no_wrap=True)),
            TextColumn("{task.fields[left]}", style="dim", table_column=Column(no_wrap=True)),
            console=console,
            transient=True,
            expand=True,
            disable=not self._live,
            redirect_stdout=False,  # it would go to standard error
        )
        self._all = self._progress.add_task("", total=None, audio="", speed="", left="")

    def __enter__(self) -> Self:
        self._began_ms = mono_ms()
        self._progress.start()
        self._update()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self._progress.stop()

    @property
    def done(self) -> int:
        """Files whose transcript there is."""
        return self._before + self.tally.done - self.tally.failed

    @property
    def of(self) -> int:
        return self._of

    def opened(self, file: Path, seconds: float) -> None:
        self.tally.opened(file, seconds)
        self._opened_ms[file] = mono_ms()
        self._seconds[file] = seconds
        self._tasks[file] = self._progress.add_task(
            "  " + _short(str(file)), total=seconds, audio="", speed="", left=""
        )
        self.heard(file, 0.0)

    def heard(self, file: Path, through_s: float) -> None:
        self.tally.heard(file, through_s)
        seconds = self._seconds[file]
        heard = min(through_s, seconds)
        audio = f"{duration(heard)} of {duration(seconds)}"
        self._progress.update(self._tasks[file], completed=heard, audio=audio)
        self._update()

    def finished(self, file: Path, error: str = "") -> None:
        """A failure is one red line."""
        self.tally.finished(file, failed=bool(error))
        if file in self._tasks:
            self._progress.remove_task(self._tasks.pop(file))
        if error:
            self.say(f"error: {error}", style="red")
        elif not self._live:
            took_s = (mono_ms() - self._opened_ms[file]) / 1000
            seconds = self._seconds[file]
            at = f"[{self._before + self.tally.done}/{self._of}] " if self._of > 1 else ""
            self.say(f"{at}{file}: {duration(seconds)} in {duration(took_s)}, {speed(seconds, took_s)}")
        self._update()

    def say(self, line: str, *, style: str | None = None) -> None:
        self._console.print(line, style=style, markup=False, highlight=False, soft_wrap=True)

    def out(self, transcript: str) -> None:
        """To standard output; above the bars where both are on a terminal."""
        if self._live and sys.stdout.isatty():
            self._console.print(transcript, end="", markup=False, highlight=False, soft_wrap=True)
        else:
            print(transcript, end="", flush=True)

    def summary(self) -> None:
        """On a terminal the bars have gone; elsewhere a single file has had its line."""
        if self._live or self._of > 1:
            wall_s, heard_s = self._elapsed_s(), self.tally.heard_s
            failed = f", {self.tally.failed} failed" if self.tally.failed else ""
            done = files(self.tally.done - self.tally.failed)
            took = f"{duration(heard_s)} of audio in {duration(wall_s)}, {speed(heard_s, wall_s)}"
            self.say(f"{done}: {took}{failed}")

    def _elapsed_s(self) -> float:
        return (mono_ms() - self._began_ms) / 1000

    def _update(self) -> None:
        tally, elapsed_s = self.tally, self._elapsed_s()
        total, left = tally.total_s, tally.left_s(elapsed_s)
        audio = duration(tally.heard_s)
        if total is not None:
            audio += f" of {'about ' if tally.guessed else ''}{duration(total)}"
        self._progress.update(
            self._all,
            description=f"{self._before + tally.done} of {files(self._of)}",
            completed=tally.heard_s,
            total=total,
            audio=audio,
            speed=speed(tally.heard_s, elapsed_s) if tally.heard_s else "",
            left=f"{duration(left)} left" if left is not None else "",
        )


def _short(name: str) -> str:
    return name if len(name) <= _NAME_CHARS else "…" + name[1 - _NAME_CHARS :]
