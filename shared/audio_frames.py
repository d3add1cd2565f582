"""Cuts FLAC and MP3 streams into frames as soon as each is whole.

FFmpeg's own parser holds ten FLAC frames back (2.5 s at 16 kHz), and its demuxer takes MP3 by the kilobyte (0.5 s at 16 kbit/s).
"""

from collections.abc import Iterator

from shared.mpeg import mp3_frame_bytes

# The longest there is: 8 channels, 32 bits, 65,535 samples.
_LONGEST = 1 << 21
_FLAC_HEADER = 16  # bytes, the longest


class Mp3Frames:
    """Layer III; tags and garbage between frames are left out."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._skip = 0  # of a tag
        self._in_step = False  # whether a frame ended where the data begins
        self._first = True

    def feed(self, data: bytes) -> Iterator[bytes]:
        self._data += data
        while frame := self._next():
            # The first may be a table of contents, which sounds like silence.
            if not (self._first and (b"Xing" in frame[:48] or b"Info" in frame[:48])):
                yield frame
            self._first = False

    def at_mark(self) -> bytes:
        return b""

    def _next(self) -> bytes:
        while True:
            skipped = min(self._skip, len(self._data))
            del self._data[:skipped]
            self._skip -= skipped
            if len(self._data) < 10:
                return b""
            if self._data[:3] == b"ID3":
                self._skip = 10 + sum((byte & 0x7F) << 7 * (3 - i) for i, byte in enumerate(self._data[6:10]))
            elif (
                (size := mp3_frame_bytes(bytes(self._data[:4]))) and self._in_step and len(self._data) < size
            ):
                return b""
            elif size and self._in_step:
                return self._take(size)
            elif size and len(self._data) < size + 4:
                return b""
            elif size and mp3_frame_bytes(bytes(self._data[size : size + 4])):
                return self._take(size)
            else:
                self._in_step = False
                sync = self._data.find(b"\xff", 1)
                del self._data[: sync if sync > 0 else len(self._data)]

    def _take(self, size: int) -> bytes:
        self._in_step = True
        frame = bytes(self._data[:size])
        del self._data[:size]
        return frame


class FlacFrames:
    """A frame ends where the next one's header begins: its length is not written anywhere."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._skip = 4  # the magic number
        self._head_over = False
        self._seen = 0  # no header begins before it but the frame's own
        self.stream_info = b""

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Raises ValueError where there can be no frame."""
        self._data += data
        while not self._head_over and self._block():
            pass
        while self._head_over and (frame := self._next()):
            yield frame

    def at_mark(self) -> bytes:
        """What has come of the newest frame, should it be all of it."""
        data = bytes(self._data)
        if not self._head_over or _header(data, 0) is None or _crc16(data):
            return b""
        self._data.clear()
        self._seen = 0
        return data

    def _block(self) -> bool:
        """Read over one block of metadata; whether there may be another one here."""
        skipped = min(self._skip, len(self._data))
        del self._data[:skipped]
        self._skip -= skipped
        if self._skip or len(self._data) < 4:
            return False
        kind, size = self._data[0], int.from_bytes(self._data[1:4])
        if kind & 0x7F == 0:
            if len(self._data) < 4 + size:
                return False
            self.stream_info = bytes(self._data[4 : 4 + size])
        self._skip = 4 + size
        self._head_over = bool(kind & 0x80)
        return True

    def _next(self) -> bytes:
        skipped = min(self._skip, len(self._data))
        del self._data[:skipped]
        self._skip -= skipped
        own = _header(self._data, 0)
        while (at := self._data.find(b"\xff", max(self._seen, 1))) >= 0 and len(
            self._data
        ) - at >= _FLAC_HEADER:
            self._seen = at + 1
            found = _header(self._data, at)
            if found and (own is None or (found[:2] == own[:2] and found[2] > own[2])):
                frame = bytes(self._data[:at])
                del self._data[:at]
                self._seen = 0
                return frame
        self._seen = max(at, 0) or len(self._data)
        if len(self._data) > _LONGEST:
            raise ValueError("no FLAC frame in two megabytes")
        return b""


def _header(data: bytes | bytearray, at: int) -> tuple[int, int, int] | None:
    """Of a FLAC frame: what is the same in all of a stream (twice), and its number."""
    head = bytes(data[at : at + _FLAC_HEADER])
    if len(head) < _FLAC_HEADER or head[0] != 0xFF or head[1] & 0xFE != 0xF8:
        return None
    block, rate = head[2] >> 4, head[2] & 15
    if block == 0 or rate == 15 or head[3] >> 4 > 10 or head[3] & 1:
        return None
    more = 8 - (head[4] ^ 0xFF).bit_length()  # the number is written like a character in UTF-8
    if more in (1, 8) or any(byte >> 6 != 2 for byte in head[5 : 4 + more]):
        return None
    size = 4 + max(1, more) + {6: 1, 7: 2}.get(block, 0) + {12: 1, 13: 2, 14: 2}.get(rate, 0)
    if _crc8(head[:size]) != head[size]:
        return None
    number = head[4] & (0x7F >> more)
    for byte in head[5 : 4 + more]:
        number = number << 6 | byte & 0x3F
    return head[1], rate << 4 | head[3] & 15, number


def _table(polynomial: int, bits: int) -> list[int]:
    table = []
    for value in range(256):
        rest = value << bits - 8
        for _ in range(8):
            rest = rest << 1 ^ (polynomial if rest >> bits - 1 else 0)
        table.append(rest & (1 << bits) - 1)
    return table


_CRC8, _CRC16 = _table(0x107, 8), _table(0x18005, 16)


def _crc8(data: bytes) -> int:
    rest = 0
    for byte in data:
        rest = _CRC8[rest ^ byte]
    return rest


def _crc16(data: bytes) -> int:
    """0 for a whole frame: its last two bytes are the sum of the others."""
    rest = 0
    for byte in data:
        rest = (rest << 8 & 0xFF00) ^ _CRC16[rest >> 8 ^ byte]
    return rest
