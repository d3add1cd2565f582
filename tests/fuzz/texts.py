"""Text frames: control messages with something wrong about them, and what is no JSON at all."""

from typing import get_args

from hypothesis import strategies as st
from pydantic import BaseModel

from shared.protocol import ClientMessage

MODELS: tuple[type[BaseModel], ...] = get_args(get_args(ClientMessage)[0])
FIELDS = sorted({field for model in MODELS for field in model.model_fields})

# Filled in by whoever plays a script: a real session, its token, and a valid key.
SESSION, TOKEN, KEY = "the-session", "the-token", "the-key"

DEEP = 1_500
# As they stand in the text: json.dumps would make most of them right.
VALUES = (
    *("null", "true", "false", "0", "-1", "1", "-0", "1.5", "8000", "16000", "48000", "320", "500", "17"),
    *("1e400", "-1e400", "1e-400", "NaN", "-Infinity", "00", "0x10", "9" * 19, "9" * 400, "1" * 3_900),
    *('""', '"en"', '"mulaw"', '"pcm_f32le"', '"true"', '"16000"', '"drop_oldest"', f'"{"x" * 65}"'),
    *(
        r'"\ud800"',
        r'"\udc00\ud800"',
        r'"\u0000"',
        r'"\uffff"',
        r'"\x"',
        '"\0"',
        '"{p00}"',
        '"é🎤"',
        '"',
        "'a'",
    ),
    *(f'"{SESSION}"', f'"{TOKEN}"', f'"{"0" * 32}"'),
    *("[]", "{}", '[{"type": "end"}]', '{"id": {"id": []}}', "[" * DEEP + "]" * DEEP, "[" * DEEP, "{" * DEEP),
)

_values = st.one_of(
    st.sampled_from(VALUES),
    st.integers().map(str),
    st.floats().map(repr),
    st.text(max_size=8).map(lambda text: f'"{text}"'),
)
_names = st.one_of(
    st.sampled_from(FIELDS), st.sampled_from(["", "di", "Type", "id\\u0000", "y" * 300, "__class__"])
)
_kinds = st.one_of(
    st.sampled_from(
        [f'"{name}"' for name in ("configure", "resume", "flush", "end", "ping", "ready", "stop")]
    ),
    _values,
)
_pairs = st.lists(st.tuples(_names, _values), max_size=3)


def _object(kind: str, pairs: list[tuple[str, str]]) -> str:
    return "{" + ", ".join(f'"{name}": {value}' for name, value in [("type", kind), *pairs]) + "}"


VALID = (
    '{"type": "configure", "sample_rate": 8000, "encoding": "mulaw"}',
    '{"type": "configure", "sample_rate": 44100, "channels": 2, "chunk_ms": 80}',
    '{"type": "configure", "encoding": "pcm_f32le", "partials": false, "denoise": true}',
    f'{{"type": "resume", "session": "{SESSION}", "resume_token": "{TOKEN}", "last_event": 1}}',
    '{"type": "flush", "id": "turn-7"}',
    '{"type": "ping", "id": "42"}',
    '{"type": "end"}',
)
objects = st.builds(_object, _kinds, _pairs)
_resumes = _pairs.map(
    lambda pairs: _object('"resume"', [("session", f'"{SESSION}"'), ("resume_token", f'"{TOKEN}"'), *pairs])
)

texts: st.SearchStrategy[str] = st.one_of(
    objects,
    objects,
    _resumes,
    st.sampled_from(VALID),
    st.builds(lambda text, at: text[:at], st.sampled_from(VALID), st.integers(0, 60)),
    st.builds(lambda text, more: text + more, st.sampled_from(VALID), st.text(max_size=4)),
    _values,
    st.text(max_size=40),
    st.sampled_from(["", "\ufeff{}", "{}", "[]", "\0", "end", "x" * 5_000, '{"type": "ping"}' * 400]),
)
