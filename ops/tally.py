"""How far a batch is: audio done, audio expected, speed, time left. And how people are told."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(slots=True)
class _File:
    bytes: int
    seconds: float | None = None  # known once it is decoded
    heard: float = 0.0


class Tally:
    """Files are decoded only when it is their turn. Until then their length is guessed from their size."""

    def __init__(self, sizes: dict[Path, int]) -> None:
        self._files = {file: _File(size) for file, size in sizes.items()}
        self.failed = 0
        self.done = 0

    def opened(self, file: Path, seconds: float) -> None:
        self._files[file].seconds = seconds

    def heard(self, file: Path, through_s: float) -> None:
        of = self._files[file]
        of.heard = min(through_s, of.seconds or through_s)

    def finished(self, file: Path, *, failed: bool) -> None:
        of = self._files[file]
        if failed:
            of.bytes, of.seconds = 0, of.heard  # no more of it will come
        elif of.seconds is not None:
            of.heard = of.seconds
        self.failed += failed
        self.done += 1

    @property
    def heard_s(self) -> float:
        return sum(of.heard for of in self._files.values())

    @property
    def total_s(self) -> float | None:
        """Of all files, as far as is known; None until a first one is."""
        known = [(of.seconds, of.bytes) for of in self._files.values() if of.seconds is not None]
        seconds, size = sum(s for s, _ in known), sum(b for _, b in known)
        unknown = sum(of.bytes for of in self._files.values() if of.seconds is None)
        if not unknown:
            return seconds
        return seconds + seconds / size * unknown if size else None

    @property
    def guessed(self) -> bool:
        """Whether `total_s` will change."""
        return any(of.seconds is None and of.bytes for of in self._files.values())

    def left_s(self, elapsed_s: float) -> float | None:
        total, heard = self.total_s, self.heard_s
        return (total - heard) * elapsed_s / heard if total is not None and heard else None


def speed(audio_s: float, wall_s: float) -> str:
    """The real-time factor, as audio per time it took."""
    factor = audio_s / wall_s if wall_s else 0.0
    return f"{factor:.{0 if factor >= 100 else 1 if factor >= 1 else 2}f}× real time"


def duration(seconds: float) -> str:
    """3725 s are 1:02:05."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def files(number: int) -> str:
    return f"{number} file" if number == 1 else f"{number} files"
