"""How far a batch is: audio done, audio expected, speed, time left. And how people are told."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

TIMES = "\N{MULTIPLICATION SIGN}"


@dataclass(slots=True)
class _Open:
    seconds: float | None  # None: it ends when it ends
    heard: float = 0.0


class Tally:
    """Files are decoded only when it is their turn: until then their length is guessed from their size."""

    def __init__(self, sizes: Mapping[Path, int]) -> None:
        self._waiting = dict(sizes)
        self._waiting_bytes = sum(sizes.values())
        self._opened_bytes = 0
        self._open: dict[Path, _Open] = {}
        self._opened_s = 0.0
        self.heard_s = 0.0
        self.done = 0
        self.failed = 0

    def opened(self, file: Path, seconds: float | None) -> None:
        self._opened_bytes += self._waiting[file]
        self._leave_waiting(file)
        self._open[file] = _Open(seconds)
        self._opened_s += seconds or 0.0

    def heard(self, file: Path, through_s: float) -> float:
        """What of the file is done; an utterance's end may be told a little after the file's."""
        of = self._open[file]
        heard = max(of.heard, through_s if of.seconds is None else min(through_s, of.seconds))
        self.heard_s += heard - of.heard
        of.heard = heard
        return heard

    def finished(self, file: Path, *, failed: bool) -> float:
        """Seconds of its audio that were done. `opened` may not have been called: for what could not be decoded."""
        self._leave_waiting(file)
        of = self._open.pop(file, _Open(0.0))
        heard = of.heard if failed or of.seconds is None else of.seconds
        self.heard_s += heard - of.heard
        self._opened_s += heard - (of.seconds or 0.0)
        self.done += not failed
        self.failed += failed
        return heard

    @property
    def guessed(self) -> bool:
        """Whether the length of some is not known yet."""
        return bool(self._waiting_bytes)

    @property
    def total_s(self) -> float | None:
        """Audio of all files. None: nobody knows."""
        if any(of.seconds is None for of in self._open.values()):
            return None
        if not self._waiting_bytes:
            return self._opened_s
        rate = self._opened_s / self._opened_bytes if self._opened_bytes else 0.0
        return self._opened_s + rate * self._waiting_bytes if rate else None

    def left_s(self, elapsed_s: float) -> float | None:
        total = self.total_s
        return (total - self.heard_s) * elapsed_s / self.heard_s if total and self.heard_s else None

    def _leave_waiting(self, file: Path) -> None:
        self._waiting_bytes -= self._waiting.pop(file, 0)


def speed(audio_s: float, wall_s: float) -> str:
    """The real-time factor, as seconds of audio per second that it took."""
    factor = audio_s / wall_s if wall_s else 0.0
    return f"{factor:.{0 if factor >= 100 else 1 if factor >= 1 else 2}f}{TIMES} real time"


def duration(seconds: float) -> str:
    """3725 s are 1:02:05."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def files(number: int) -> str:
    return f"{number} file" if number == 1 else f"{number} files"
