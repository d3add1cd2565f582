"""What one client does from its handshake until it leaves."""

from dataclasses import dataclass
from typing import Literal

from hypothesis import strategies as st

from tests.fuzz import handshakes
from tests.fuzz.frames import frames
from tests.fuzz.texts import KEY, SESSION, TOKEN, texts

# `end`: says so and waits for the rest; `close`: a closing handshake; `eof`, `abort`: the connection ends without one.
Ending = Literal["end", "close", "eof", "abort"]

# One more than this gateway takes (conftest.py).
FRAME_BYTES = 65_536


@dataclass(frozen=True)
class Script:
    query: str = ""
    headers: tuple[tuple[str, str], ...] = (("Authorization", f"Bearer {KEY}"),)
    subprotocols: tuple[str, ...] = ()
    messages: tuple[str | bytes, ...] = ()
    raw: bytes = b""  # after the messages, as it is, on the TCP connection
    ending: Ending = "end"
    close_code: int = 1000

    def needs_a_session(self) -> bool:
        """Whether it goes on with a session that somebody has left."""
        said = [self.query, *(message for message in self.messages if isinstance(message, str))]
        return any(name in text for name in (SESSION, TOKEN) for text in said)


_key = ("Authorization", f"Bearer {KEY}")


def _header(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """What the client's library consents to send; test_heads.py sends the rest."""
    return values.map(lambda value: value.encode("latin-1", "replace").decode("latin-1").strip())


_garbled = st.fixed_dictionaries(
    {}, optional={"Authorization": _header(handshakes.authorizations), "Origin": _header(handshakes.origins)}
).map(lambda headers: tuple(headers.items()))
_headers = st.one_of(
    *[st.just((_key,))] * 6, st.just(((_key), ("Origin", "http://localhost:3000"))), _garbled
)
_messages = st.one_of(
    st.lists(st.one_of(frames, texts), max_size=3),
    st.lists(frames, min_size=1, max_size=3),
    st.tuples(frames, texts, st.just('{"type": "flush", "id": "z"}')),
    st.just([bytes(FRAME_BYTES + 1)]),
).map(tuple)
_endings = st.sampled_from(["end", "end", "end", "close", "eof", "abort"])
_close_codes = st.sampled_from([1000, 1001, 1008, 1011, 3000, 4999])

scripts: st.SearchStrategy[Script] = st.one_of(
    st.builds(
        Script,
        query=st.one_of(st.just(""), st.just(""), handshakes.queries),
        headers=_headers,
        subprotocols=st.one_of(st.just(()), st.just(("streamscribe.v1", f"bearer.{KEY}"))),
        messages=_messages,
        ending=_endings,
        close_code=_close_codes,
    ),
    st.builds(Script, query=handshakes.good, messages=_messages, ending=_endings),
    st.builds(Script, query=handshakes.good, messages=_messages),
    st.builds(Script, query=handshakes.resumes, messages=_messages, ending=_endings),
)
