"""Moonshine's token file: byte strings with a length of one byte, or two when it is 128 and more."""

from collections.abc import Sequence
from pathlib import Path

SPACE = "▁".encode()


class Vocabulary:
    def __init__(self, pieces: Sequence[bytes]) -> None:
        self._pieces = tuple(pieces)

    @classmethod
    def read(cls, path: Path) -> "Vocabulary":
        raw, pieces, i = path.read_bytes(), [], 0
        while i < len(raw):
            length, i = raw[i], i + 1
            if length >= 128:
                length, i = raw[i] * 128 + length - 128, i + 1
            pieces.append(raw[i : i + length])
            i += length
        return cls(pieces)

    def __len__(self) -> int:
        return len(self._pieces)

    def piece(self, token: int) -> bytes:
        """A token's bytes; nothing for control tokens such as <s>."""
        raw = self._pieces[token]
        return b"" if raw.startswith(b"<") and raw.endswith(b">") and not _is_byte(raw) else raw

    def starts_word(self, token: int) -> bool:
        return self._pieces[token].startswith(SPACE)

    def text(self, tokens: Sequence[int]) -> str:
        raw = b"".join(_byte(p) if _is_byte(p) else p for p in map(self.piece, tokens))
        return raw.decode("utf-8", "replace").replace("▁", " ").strip()


def _is_byte(piece: bytes) -> bool:
    """<0xE2>: a byte that had no token of its own."""
    return len(piece) == 6 and piece.startswith(b"<0x")


def _byte(piece: bytes) -> bytes:
    return bytes([int(piece[3:5], 16)])
