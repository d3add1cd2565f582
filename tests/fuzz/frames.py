"""Binary frames: what might arrive as audio."""

import random
import struct

from hypothesis import strategies as st

from tests.fuzz.texts import DEEP, VALID, texts
from tests.unit.test_audio import ADTS_FRAME, MP3_FRAME
from tests.unit.test_stages import speech

FILES = (
    b"RIFF\x24\x00\x00\x00WAVEfmt ",
    b"RF64\xff\xff\xff\xff",
    b"OggS\x00\x02",
    b"fLaC\x00\x00\x00\x22",
    b"\x1a\x45\xdf\xa3\x01",
    b"ID3\x04\x00",
    b"\x00\x00\x00\x20ftypM4A ",
    b"#!AMR\n",
    MP3_FRAME * 6,
    ADTS_FRAME * 6,
)
FLOATS = (float("nan"), float("inf"), float("-inf"), 3.4e38, -3.4e38, 1e-45, -0.0, 1.0, 0.25, 32_768.0)
JSON = (*VALID, '{"id": ' + "[" * DEEP + "]" * DEEP + "}", '{"id": ' * 500 + "1" + "}" * 500)
SPEECH = speech(1.0, 7).tobytes()

_sizes = st.one_of(st.integers(0, 40), st.sampled_from([320, 639, 640, 2_559, 2_560, 2_561, 5_000]))
_floats = st.lists(st.sampled_from(FLOATS), min_size=1, max_size=6).map(
    lambda values: struct.pack(f"<{len(values)}f", *values)
)
_patterns = st.one_of(
    st.sampled_from([b"\0", b"\xff", b"\x00\x80", b"\xff\x7f", b"\x7f\x80", b"~}", b"{", b"A b"]),
    st.binary(min_size=1, max_size=8),
    _floats,
)

frames: st.SearchStrategy[bytes] = st.one_of(
    st.binary(max_size=80),
    st.builds(lambda seed, size: random.Random(seed).randbytes(size), st.integers(0, 1 << 32), _sizes),
    st.builds(lambda pattern, size: (pattern * size)[:size], _patterns, _sizes),
    st.builds(lambda at, size: SPEECH[at : at + size], st.integers(0, 20_000), _sizes),
    st.builds(lambda mark, rest: mark + rest, st.sampled_from(FILES), st.binary(max_size=60)),
    (texts | st.sampled_from(JSON)).map(lambda text: text.encode()),
)
