"""HTTP requests as they arrive on the wire: whole, torn, or of another world."""

from hypothesis import strategies as st

from tests.fuzz import handshakes

METHODS = (
    b"GET",
    b"GET",
    b"GET",
    b"POST",
    b"HEAD",
    b"OPTIONS",
    b"PUT",
    b"get",
    b"",
    b"G\0T",
    b"CONNECT",
    b"PRI",
    b"\xff",
)
TARGETS = (
    *(
        b"/healthz",
        b"/readyz",
        b"/metrics",
        b"/openapi.json",
        b"/v1/stream",
        b"/v1/stream?sample_rate=8000",
        b"/",
    ),
    *(
        b"/v1/sessions/" + b"0" * 32 + b"/events",
        b"/v1/sessions/%00/events",
        b"/v1/sessions/%ff%fe/events?token=x",
    ),
    *(
        b"*",
        b"",
        b"http://evil.example/healthz",
        b"//",
        b"/../../etc/passwd",
        b"/%zz",
        b"/\xc3\xa9",
        b"/healthz#a",
    ),
    *(b"/healthz?" + b"a" * 5_000, b"/" + b"a/" * 4_000, b"/v1/stream?" + b"%" * 300, b"/a b"),
)
VERSIONS = (
    b"HTTP/1.1",
    b"HTTP/1.1",
    b"HTTP/1.1",
    b"HTTP/1.0",
    b"HTTP/2.0",
    b"HTTP/9",
    b"",
    b"http/1.1",
    b"HTTP/1.1 ",
)
UPGRADE = (
    b"Connection: Upgrade",
    b"Upgrade: websocket",
    b"Sec-WebSocket-Version: 13",
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
)
LINES = (
    *(b"Host: localhost", b"Host: evil.example", b"Host: [", b"Host:", b"Host: \xff", b"Host: a, b"),
    *(b"Content-Length: 5", b"Content-Length: -1", b"Content-Length: " + b"9" * 400, b"Content-Length: x"),
    *(
        b"Transfer-Encoding: chunked",
        b"Transfer-Encoding: gzip, chunked",
        b"Expect: 100-continue",
        b"TE: trailers",
    ),
    *UPGRADE,
    *(
        b"Upgrade: h2c",
        b"Upgrade: WebSocket, websocket",
        b"Upgrade: ,",
        b"Connection: close",
        b"Connection: upgrade,,",
    ),
    *(
        b"Sec-WebSocket-Version: 12",
        b"Sec-WebSocket-Version: \xff",
        b"Sec-WebSocket-Key: x",
        b"Sec-WebSocket-Key: \xff",
    ),
    *(
        b"Sec-WebSocket-Protocol: ;",
        b"Sec-WebSocket-Protocol: \xc3\xa9",
        b"Sec-WebSocket-Protocol: streamscribe.v1,,",
    ),
    *(b"Sec-WebSocket-Protocol: bearer.\xff\xfe", b"Sec-WebSocket-Protocol: bearer.scribe_00000000_\xe9"),
    *(
        b"Sec-WebSocket-Extensions: permessage-deflate; server_max_window_bits=99",
        b"Sec-WebSocket-Extensions: ;=;",
    ),
    *(
        b"Sec-WebSocket-Extensions: permessage-deflate; x",
        b"Sec-WebSocket-Extensions: \xff",
        b"Cookie: a=b; \xff",
    ),
    *(
        b"Authorization: Bearer \xff\xfe",
        b"Authorization: Bearer a.b.c",
        b"Authorization:",
        b"Authorization: Token",
    ),
    *(
        b"Origin: null",
        b"Origin: \xff",
        b"Last-Event-ID: -1",
        b"Last-Event-ID: x",
        b"Last-Event-ID: " + b"9" * 30,
    ),
    *(
        b"X-Forwarded-For: ,",
        b"X-Forwarded-Proto: gopher",
        b"X-Forwarded-For: \xff",
        b"no colon",
        b" folded",
        b": empty",
    ),
    *(b"X: " + b"y" * 8_500, b"\r\n".join([b"X: y"] * 80), b"X\0: y", b"X: \0", b"X : y"),
)

_lines = st.one_of(
    st.sampled_from(LINES),
    st.sampled_from(LINES),
    st.binary(max_size=30),
    st.builds(
        lambda name, value: name + b": " + value.encode("utf-8", "replace"),
        st.sampled_from([b"Authorization", b"Origin", b"Last-Event-ID", b"Sec-WebSocket-Protocol", b"Host"]),
        st.one_of(
            handshakes.authorizations, handshakes.origins, handshakes.last_event_ids, handshakes.secrets
        ),
    ),
)


def _with_host(lines: list[bytes]) -> list[bytes]:
    return [b"Host: localhost", *lines]


_upgrades = st.builds(
    lambda left_out, more: _with_host([*(line for line in UPGRADE if line != left_out), *more]),
    st.sampled_from([b"", b"", *UPGRADE]),
    st.lists(_lines, max_size=2),
)
_rests = st.one_of(
    st.just(b""), st.just(b"hello"), st.just(b"5\r\nhello\r\n0\r\n\r\n"), st.binary(max_size=30)
)


def _head(start: tuple[bytes, ...], lines: list[bytes], newline: bytes, rest: bytes) -> bytes:
    return newline.join([b" ".join(start), *lines, b"", rest])


_whole = st.builds(
    _head,
    st.tuples(st.sampled_from(METHODS), st.sampled_from(TARGETS), st.sampled_from(VERSIONS)),
    st.one_of(_upgrades, st.lists(_lines, max_size=4), st.lists(_lines, max_size=3).map(_with_host)),
    st.sampled_from([b"\r\n"] * 4 + [b"\n", b"\r"]),
    _rests,
)
_sockets = st.builds(
    _head, st.just((b"GET", b"/v1/stream", b"HTTP/1.1")), _upgrades, st.just(b"\r\n"), _rests
)
heads: st.SearchStrategy[bytes] = st.one_of(
    _whole,
    _whole,
    _sockets,
    st.builds(lambda head, part: head[: int(len(head) * part)], _whole, st.floats(0, 1)),
    st.binary(max_size=80),
    st.sampled_from([b"", b"\r\n" * 50, b"\0" * 20_000, b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 4_000, b"\x16\x03\x01\x02\x00"]),
)  # fmt: skip
