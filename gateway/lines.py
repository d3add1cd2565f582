"""The lines of one client's call together: one, or one for each channel."""

from collections.abc import Callable, Sequence

from gateway.audio import split
from gateway.line import Line
from gateway.place import SAMPLE_RATE, Place, restart_of
from shared.protocol import SessionOptions


class Lines:
    """What a source of samples writes to."""

    def __init__(self, lines: Sequence[Line], heard: Callable[[float], None]) -> None:
        """`heard`: told of new audio, in milliseconds, all channels together."""
        self._lines = lines
        self._heard = heard
        self.options: SessionOptions = lines[0].held.options
        self.over = all(line.held.over for line in lines)
        # Of what the client sends first: its sample, and the place that the decoder's output begins at.
        self.sample, self.start = self._restart()
        for line in lines:
            line.expect(self.start)
        self._known = sum(line.place.samples - self.start.samples for line in lines)

    @property
    def known_container(self) -> bool:
        """Whether the session has taken some of a container already."""
        return bool(self.start.container)

    @property
    def safe(self) -> tuple[int, int]:
        """The newest chunk and the client's sample that need not be sent again."""
        return min(line.seq for line in self._lines), self._restart()[0]

    def contain(self) -> None:
        """From now on a client that comes back has to send everything again."""
        for line in self._lines:
            line.contain()

    async def write(self, samples: bytes) -> None:
        """Take s16le at 16 kHz, interleaved. Waits for room when the ring's policy is to block."""
        new = len(samples) // 2
        if self._known:  # not counted twice
            known = min(self._known, new)
            self._known -= known
            new -= known
        self._heard(new * 1000 / SAMPLE_RATE)
        for line, own in zip(self._lines, split(samples, len(self._lines)), strict=True):
            await line.write(own)

    def flush(self, flush_id: str, theirs: int) -> None:
        """Set a flush mark. `theirs`: samples the client had sent."""
        for line in self._lines:
            line.flush(flush_id, theirs)

    def end(self) -> None:
        for line in self._lines:
            line.end()

    def leave(self, *, comes_back: bool) -> None:
        """Nothing more comes in here."""
        for line in self._lines:
            line.leave(comes_back=comes_back)

    def _restart(self) -> tuple[int, Place]:
        return restart_of([line.place for line in self._lines], self.options.sample_rate)
