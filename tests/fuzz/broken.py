"""WebSocket frames that are not what their own fields say."""

import struct

from hypothesis import strategies as st


def _frame(first: int, payload: bytes, claimed: int | None, mask: bytes) -> bytes:
    """One frame of a client as RFC 6455 has it, but for what its fields say."""
    length = len(payload) if claimed is None else claimed
    masked = 0x80 if mask else 0
    if length < 126:
        head = struct.pack("!BB", first, masked | length)
    elif length < 1 << 16:
        head = struct.pack("!BBH", first, masked | 126, length)
    else:
        head = struct.pack("!BBQ", first, masked | 127, length)
    return (
        head + mask + bytes(byte ^ mask[i % 4] for i, byte in enumerate(payload)) if mask else head + payload
    )


_payloads = st.one_of(
    st.binary(max_size=130),
    st.sampled_from(
        [b"", b"\x03", b"\x03\xe8", b"\x03\xe8\xff", b"\x00\x01", b"\xff\xff bye", b"\xed\xa0\x80", b"\xc3"]
    ),
    st.just(b'{"type": "ping", "id": "1"}'),
)
_frames = st.builds(
    _frame,
    st.one_of(st.sampled_from([0x81, 0x82, 0x88, 0x89, 0x8A, 0x01, 0x02, 0x00, 0x80]), st.integers(0, 255)),
    _payloads,
    st.one_of(st.none(), st.none(), st.sampled_from([0, 1, 125, 65_537, 1 << 62, (1 << 64) - 1])),
    st.sampled_from([b"\0\0\0\0", b"abcd", b"abcd", b""]),
)
raw_frames: st.SearchStrategy[bytes] = st.one_of(
    st.lists(_frames, min_size=1, max_size=4).map(b"".join), st.binary(min_size=1, max_size=60)
)
