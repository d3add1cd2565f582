"""What a client has sent and may have to send again, until the fleet says that it is safe.

Of a container that is all of it, for its bytes can't be counted in samples: up to so many bytes, beyond which a lost connection
is the end of the session.
"""

from collections import deque
from collections.abc import Iterator

from shared.protocol import Flush, SessionOptions

MOST_BYTES = 64 << 20
_WIDTH = {"pcm_s16le": 2, "pcm_f32le": 4, "mulaw": 1, "alaw": 1}


class Kept:
    """Audio and flushes of one session, in the order they were sent."""

    def __init__(self, options: SessionOptions) -> None:
        self._frame_bytes = _WIDTH[options.raw_encoding] * options.channels
        self._sent: deque[tuple[int, bytes | Flush]] = deque()  # (bytes of audio sent before it, message)
        self._bytes = 0
        self._flushes = 0  # forgotten ones
        self.lost = False  # whether there was too much to keep
        self.ended = False

    def audio(self, data: bytes) -> None:
        if self.lost:
            return
        self._sent.append((self._bytes, data))
        self._bytes += len(data)
        if self._bytes - self._sent[0][0] > MOST_BYTES:
            self._sent.clear()
            self.lost = True

    def flush(self, message: Flush) -> None:
        self._sent.append((self._bytes, message))

    @property
    def samples(self) -> int:
        """Of audio that is kept."""
        return (self._bytes - self._sent[0][0]) // self._frame_bytes if self._sent else 0

    def safe(self, sample: int) -> None:
        """Forget what was sent before this sample."""
        while self._sent and self._end_of(self._sent[0]) < sample * self._frame_bytes:
            _, message = self._sent.popleft()
            self._flushes += isinstance(message, Flush)

    def again(self, sample: int, flushes: int) -> Iterator[bytes | Flush]:
        """Audio from this sample on, and the flushes after so many, in order. Sent audio must be kept from there."""
        at, skip = sample * self._frame_bytes, flushes - self._flushes
        for start, message in list(self._sent):
            if isinstance(message, Flush):
                skip -= 1
                if skip < 0:
                    yield message
            elif start + len(message) > at:
                yield message[max(0, at - start) :]

    def _end_of(self, sent: tuple[int, bytes | Flush]) -> int:
        start, message = sent
        return start + (0 if isinstance(message, Flush) else len(message))
