"""Live captions: finished lines scroll by, the open utterance changes in place below them."""

import sys
from types import TracebackType
from typing import Self

from rich.console import Console, RenderableType
from rich.live import Live
from rich.text import Text

from shared.events import Final, Gap, Partial, TranscriptEvent

# The open utterance keeps to its last lines: a taller live area than the terminal would scroll and leave copies.
_OPEN_LINES = 4


class Captions:
    """Shows transcript events as they come. On a terminal words that may still change are dim.

    Anywhere else finals are printed one per line, and partials only when asked for, after `… `.
    """

    def __init__(self, console: Console | None = None, *, partials: bool | None = None) -> None:
        self._console = console or Console(file=sys.stdout, highlight=False)
        terminal = self._console.is_terminal and not self._console.is_dumb_terminal
        self._partials = terminal if partials is None else partials
        # Refreshed at each event: a timer would wake the process for nothing.
        self._live = Live(console=self._console, auto_refresh=False, transient=True) if terminal else None

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()

    def show(self, event: TranscriptEvent) -> None:
        match event:
            case Partial() if self._partials:
                self._update(event)
            case Final():
                self._line(Text(event.text) if event.text else None)
            case Gap():
                lost = (event.end_ms - event.start_ms) / 1000
                self._line(Text(f"[{lost:.1f} s of audio lost: {event.reason}]", style="yellow"))

    def _update(self, partial: Partial) -> None:
        text = Text(partial.text[: partial.stable])
        text.append(partial.text[partial.stable :], style="dim")
        if not self._live:
            self._print(Text.assemble("… ", text))
            return
        shown = min(_OPEN_LINES, max(self._console.height - 2, 1))
        lines = text.wrap(self._console, max(self._console.width, 1))
        self._live.update(Text("\n").join(lines[-shown:]), refresh=True)

    def _line(self, line: Text | None) -> None:
        if self._live:
            self._live.update("", refresh=True)
        if line is not None:
            self._print(line)

    def _print(self, line: RenderableType) -> None:
        # Piped lines stay whole: the reader of a pipe wraps, or greps.
        self._console.print(line, soft_wrap=self._live is None)
