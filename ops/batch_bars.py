"""How a batch goes, on standard error: bars on a terminal, elsewhere a line for each file; a summary at the end."""

import sys
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.table import Column

from ops.tally import Tally, duration, files, speed
from shared.clock import mono_ms

_NAME_CHARS = 24


@dataclass(frozen=True, slots=True)
class _Running:
    bar: TaskID
    seconds: float | None
    since_ms: float


class Bars:
    """Use it as a context while files are in work: `opened`, `heard`, `finished`, in this order for each."""

    def __init__(
        self, console: Console, sizes: dict[Path, int], *, before: int = 0, live: bool | None = None
    ) -> None:
        """`before`: how many files were done by earlier runs; they count as files, but not as audio. `live`: bars or lines."""
        self.tally = Tally(sizes)
        self._console = console
        self._before = before
        self.of = before + len(sizes)
        self._began_ms = mono_ms()
        self._wall_s = 0.0
        self._running: dict[Path, _Running] = {}
        self._live = console.is_interactive if live is None else live
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
        self._all = self._add_bar("", None)

    def __enter__(self) -> Self:
        self._began_ms = mono_ms()
        self._progress.start()
        self._update()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self._progress.stop()
        self._wall_s = self._elapsed_s()

    @property
    def done(self) -> int:
        """Files that have a transcript."""
        return self._before + self.tally.done

    def opened(self, file: Path, seconds: float | None) -> None:
        """`seconds` None: a stream."""
        self.tally.opened(file, seconds)
        bar = self._add_bar(f"  {_short(str(file))}", seconds, visible=self.of > 1)
        self._running[file] = _Running(bar, seconds, mono_ms())
        self.heard(file, 0.0)

    def heard(self, file: Path, through_s: float) -> None:
        heard, running = self.tally.heard(file, through_s), self._running[file]
        self._progress.update(running.bar, completed=heard, audio=_of(heard, running.seconds))
        self._update()

    def finished(self, file: Path, error: str = "") -> None:
        """A failure is one red line."""
        heard_s = self.tally.finished(file, failed=bool(error))
        running = self._running.pop(file, None)
        if running:
            self._progress.remove_task(running.bar)
        if error:
            self.say(f"error: {error}", style="red")
        elif running and not self._live:
            took_s = (mono_ms() - running.since_ms) / 1000
            at = f"[{self.done + self.tally.failed}/{self.of}] " if self.of > 1 else ""
            self.say(f"{at}{file}: {duration(heard_s)} in {duration(took_s)}, {speed(heard_s, took_s)}")
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
        """On a terminal the bars are gone by now; elsewhere a single file has had its line."""
        if self._live or self.of > 1:
            tally, wall_s = self.tally, self._wall_s
            audio = f"{duration(tally.heard_s)} of audio in {duration(wall_s)}"
            failed = f", {tally.failed} failed" if tally.failed else ""
            self.say(f"{files(tally.done)}: {audio}, {speed(tally.heard_s, wall_s)}{failed}")

    def _add_bar(self, name: str, total: float | None, *, visible: bool = True) -> TaskID:
        return self._progress.add_task(name, total=total, visible=visible, audio="", speed="", left="")

    def _elapsed_s(self) -> float:
        return (mono_ms() - self._began_ms) / 1000

    def _update(self) -> None:
        tally, elapsed_s = self.tally, self._elapsed_s()
        left = tally.left_s(elapsed_s)
        self._progress.update(
            self._all,
            description=f"{self.done + tally.failed} of {files(self.of)}",
            completed=tally.heard_s,
            total=tally.total_s,
            audio=_of(tally.heard_s, tally.total_s, "~" if tally.guessed else ""),
            speed=speed(tally.heard_s, elapsed_s) if tally.heard_s else "",
            left="" if left is None else f"{duration(left)} left",
        )


def _of(heard_s: float, total_s: float | None, about: str = "") -> str:
    return duration(heard_s) + ("" if total_s is None else f" of {about}{duration(total_s)}")


def _short(name: str) -> str:
    return name if len(name) <= _NAME_CHARS else "…" + name[1 - _NAME_CHARS :]
