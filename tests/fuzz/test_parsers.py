"""What a client may send, against what reads it: the only errors are ours, and they say what was wrong."""

import pytest
from hypothesis import strategies as st
from starlette.datastructures import QueryParams
from starlette.requests import HTTPConnection

from gateway.audio import AudioDecoder
from gateway.door import Door
from gateway.messages import control_of, request_of
from shared.access import Key, new_secret
from shared.errors import BadInput, Forbidden, Unauthorized
from shared.protocol import Encoding, SessionOptions
from shared.settings import AuthSettings, LimitSettings
from tests.fuzz import handshakes
from tests.fuzz.budget import fuzz
from tests.fuzz.frames import frames
from tests.fuzz.texts import KEY, texts
from tests.fuzz.verdict import assert_named, assert_told_well

pytestmark = pytest.mark.slow

ENCODINGS: tuple[Encoding, ...] = ("pcm_s16le", "pcm_f32le", "mulaw", "alaw")


def test_a_text_frame_is_a_message_or_is_told_what_is_wrong_with_it():
    def read(text):
        try:
            control_of(text)
        except BadInput as error:
            assert_named(error, text)

    fuzz("messages", texts, read)


def test_a_query_asks_for_a_session_or_is_told_what_is_wrong_with_it():
    def read(query):
        try:
            request_of(dict(QueryParams(query)))
        except BadInput as error:
            assert_named(error, query)

    fuzz("queries", handshakes.queries, read)


options = st.builds(
    SessionOptions,
    encoding=st.sampled_from(ENCODINGS),
    sample_rate=st.sampled_from([8_000, 11_025, 16_000, 44_100, 48_000]),
    channels=st.sampled_from([1, 1, 2, 3, 8]),
)


def test_frames_of_anything_are_samples_or_are_told_what_is_wrong_with_them():
    def decode(announced_and_sent):
        announced, sent = announced_and_sent
        decoder = AudioDecoder(announced)
        try:
            heard = b"".join([*map(decoder.feed, sent), decoder.finish()])
            assert len(heard) % 2 == 0
            decoder.require_whole()
        except BadInput as error:
            assert_told_well(str(error), sent)

    fuzz("audio", st.tuples(options, st.lists(frames, max_size=4)), decode)


@pytest.fixture
def known_key():
    return new_secret()


@pytest.fixture
def door(tmp_path, known_key):
    """Without Redis: nothing of it is asked before a door's start."""
    key_id, secret = known_key
    (tmp_path / "jwt").write_text(handshakes.JWT_SECRET)
    settings = AuthSettings(
        required=True, jwt_key_file=tmp_path / "jwt", jwt_algorithm="HS256", jwt_audience=handshakes.AUDIENCE
    )
    door = Door(None, settings, LimitSettings(), "127.0.0.1")
    door._ring._from_file = {key_id: Key.new(secret, name="acme", scopes=["transcribe"])}
    return door


headers = st.fixed_dictionaries(
    {}, optional={"authorization": handshakes.authorizations, "origin": handshakes.origins}
)


def test_credentials_of_any_kind_let_somebody_in_or_are_refused_in_words(door, known_key):
    def enter(sent):
        fields, subprotocols = sent
        raw = [(name.encode(), as_sent(value.replace(KEY, known_key[1]))) for name, value in fields.items()]
        scope = {"type": "http", "headers": [(b"host", b"localhost"), *raw], "query_string": b""}
        try:
            door.enter(HTTPConnection(scope | {"subprotocols": subprotocols}), "transcribe")
        except (Unauthorized, Forbidden) as error:
            assert_told_well(str(error), sent)

    fuzz("credentials", st.tuples(headers, handshakes.subprotocols), enter)


def as_sent(value: str) -> bytes:
    return value.encode("latin-1", "replace")
