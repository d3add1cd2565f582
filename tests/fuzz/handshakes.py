"""What comes before a session: query strings, and the headers that let somebody in."""

import base64
import json
from typing import Any
from urllib.parse import quote

import jwt
from hypothesis import strategies as st

from shared.protocol import Resume, SessionOptions
from tests.fuzz.texts import KEY, SESSION, TOKEN

JWT_SECRET, AUDIENCE = "known to whoever makes the tokens here", "scribe"

OPTIONS = sorted(SessionOptions.model_fields)
NAMES = [*OPTIONS, *Resume.model_fields, "token", "samplerate", "", "a[]", "y" * 300]
GOOD = (
    *("sample_rate=8000", "sample_rate=44100", "sample_rate=48000", "encoding=pcm_f32le", "encoding=mulaw"),
    *("encoding=alaw", "channels=1", "channels=3", "language=en", "partials=false", "endpointing_ms=200"),
    *("chunk_ms=80", "chunk_ms=1000", "when_full=drop_oldest", "when_full=block", "denoise=true"),
)
VALUES = (
    *(
        "",
        "0",
        "-1",
        "16000",
        "16000.0",
        "1e4",
        "NaN",
        "inf",
        "9" * 19,
        "9" * 400,
        "9" * 4_000,
        "true",
        "None",
    ),
    *(
        "mp3",
        "xx",
        "{p00}",
        "%00",
        "%ff%fe",
        "%zz",
        "%",
        "%ED%A0%80",
        "+",
        ";",
        "==",
        "\u0661\u0666",
        "1_000",
    ),
    *(SESSION, TOKEN, "0" * 32, "x" * 65),
)

_known = st.sampled_from(GOOD)
_wrong = st.builds(
    lambda name, value: f"{name}={value}",
    st.sampled_from(NAMES),
    st.one_of(st.sampled_from(VALUES), st.text(max_size=8).map(quote), st.integers().map(str)),
)
_options = st.lists(st.one_of(_known, _known, _known, _wrong), min_size=1, max_size=4)
_many = st.integers(30, 40).map(lambda count: [f"a{i}=1" for i in range(count)])
_junk = st.text(st.sampled_from("&=;%?/:@+abc019é"), max_size=30).map(
    lambda text: [quote(text, safe="&=;%?/:@+")]
)
_guesses = st.builds(
    lambda session, token, number, more: [f"session={session}", f"resume_token={token}", *number, *more],
    st.sampled_from([SESSION, SESSION, SESSION, "0" * 32, "x" * 65, "{p00}", "", "%00"]),
    st.sampled_from([TOKEN, TOKEN, TOKEN, "a", "", "%C3%A9", "x" * 65]),
    st.sampled_from([[], ["last_event=0"], ["last_event=1"], ["last_event=7"], ["last_event=2000"]])
    | st.sampled_from(VALUES).map(lambda value: [f"last_event={value}"]),
    st.lists(_wrong, max_size=1),
)
good = st.lists(_known, min_size=1, max_size=4, unique_by=lambda pair: pair.split("=")[0]).map("&".join)
resumes = _guesses.map("&".join)
queries: st.SearchStrategy[str] = st.one_of(good, st.one_of(_options, _many, _junk, _guesses).map("&".join))

_text = st.text(st.characters(min_codepoint=32, max_codepoint=255, exclude_characters="\x7f"), max_size=30)
_tokens = st.text(st.sampled_from("abcXYZ019-_.!#$%&'*+^`|~"), min_size=1, max_size=30)
_claims: st.SearchStrategy[Any] = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.just([]), st.just({"a": [1]}),
    st.sampled_from([10**400, 4_102_444_800, AUDIENCE, [AUDIENCE], "transcribe listen", "x" * 300, "\ud800"]),
)  # fmt: skip


def _unpadded(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


def _signed(changes: dict[str, Any]) -> str:
    claims = {"sub": "ann", "aud": AUDIENCE, "scope": "transcribe", "exp": 4_102_444_800}
    return jwt.api_jws.PyJWS().encode(json.dumps(claims | changes).encode(), JWT_SECRET, "HS256")


signed = st.dictionaries(
    st.sampled_from(["sub", "aud", "scope", "exp", "nbf", "iat", "iss", "jti"]), _claims, max_size=2
).map(_signed)
unsigned = st.builds(
    lambda head, body, tail: f"{_unpadded(head)}.{_unpadded(body)}.{tail}",
    st.one_of(_claims, st.fixed_dictionaries({"alg": _claims | st.sampled_from(["none", "HS256", "RS256"])})),
    st.one_of(_claims, st.dictionaries(st.sampled_from(["sub", "aud", "exp"]), _claims)),
    st.sampled_from(["", "AAAA", "é", "."]),
)
secrets: st.SearchStrategy[str] = st.one_of(
    st.sampled_from([KEY, "scribe_", "scribe__", "scribe_00000000_", f"{KEY}x", "a.b.c", "..", "scribe_é_é"]),
    signed,
    unsigned,
    _text,
)
authorizations = st.one_of(
    st.builds(
        lambda scheme, secret: f"{scheme} {secret}", st.sampled_from(["Bearer", "token", "Basic"]), secrets
    ),
    _text,
)
origins = st.one_of(
    st.sampled_from(
        [
            *(
                "null",
                "",
                "http://localhost:3000",
                "https://evil.example",
                "http://[",
                "http://[::1]",
                "//",
                "a:b:c",
            ),
            *(
                "http://127.0.0.1:99999999",
                "http://[::1%25x]",
                "http://\u2100.example",
                "file://",
                "http://a@b:c",
            ),
        ]
    ),
    _text,
)
subprotocols = st.lists(_tokens | secrets.filter(str.isascii).map(lambda s: f"bearer.{s}"), max_size=3)
last_event_ids = st.one_of(
    st.sampled_from(["0", "1", "3", "-1", "", "x", "1e3", "9" * 18, "9" * 19, "9" * 30, "9" * 4_400, "é"]),
    st.integers().map(str),
    _text.map(str.strip),
)
