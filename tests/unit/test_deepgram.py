"""Deepgram's protocol as a translation: queries, messages and events in, messages out. Over a socket: tests/dialects."""

import json
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.datastructures import QueryParams
from starlette.requests import HTTPConnection

from gateway.dialects.base import Audio, Begin, Reply
from gateway.dialects.deepgram import Deepgram
from gateway.dialects.deepgram_query import asked, asked_of_recording
from gateway.dialects.deepgram_recorded import transcript
from shared.errors import (
    BadInput,
    Forbidden,
    Overloaded,
    QuotaExceeded,
    RedisUnavailable,
    Replaced,
    Silent,
    Unauthorized,
)
from shared.events import (
    EVENT_ADAPTER,
    End,
    ErrorEvent,
    Final,
    Flushed,
    Gap,
    Partial,
    Silence,
    SpeechEnd,
    SpeechStart,
    Word,
)
from shared.protocol import EndOfAudio, Flush, SessionOptions
from tests.pipeline import Pipeline, audio_chunks
from tests.unit.test_stages import silence, speech, stages
from workers.wire import AudioChunk

S = {"session": "s"}


def head(query: str = "", protocols: list[str] | None = None) -> HTTPConnection:
    scope = {
        "type": "websocket",
        "query_string": query.encode(),
        "headers": [],
        "subprotocols": protocols or [],
    }
    return HTTPConnection(scope)


def wants(query: str):
    return asked(QueryParams(query))


def said(dialect: Deepgram, message: dict):
    return list(dialect.hear(json.dumps(message)))


def told(dialect: Deepgram, *events, channel: int = 0) -> list[dict]:
    return [json.loads(text) for event in events for text in dialect.tell(event, channel)]


def final(number: int, start_ms: int, end_ms: int, *words: Word) -> Final:
    text = " ".join(word.text for word in words)
    return Final(
        **S,
        utterance=number,
        text=text,
        stable=len(text),
        start_ms=start_ms,
        end_ms=end_ms,
        confidence=0.9 if words else None,
        words=list(words),
    )


HELLO = final(
    1,
    300,
    1500,
    Word(text="Hello,", start_ms=400, end_ms=900, confidence=0.8),
    Word(text="World!", start_ms=900, end_ms=1300),
)
SPOKEN = (SpeechStart(**S, utterance=1, start_ms=300), HELLO, SpeechEnd(**S, utterance=1, end_ms=1500))


# The query.


@pytest.mark.parametrize(
    ("query", "options"),
    [
        ("", SessionOptions(partials=False, silence_ms=1000)),
        ("encoding=linear16&sample_rate=8000", SessionOptions(sample_rate=8000, partials=False, silence_ms=1000)),
        ("encoding=linear32&sample_rate=48000", SessionOptions(encoding="pcm_f32le", sample_rate=48000, partials=False, silence_ms=1000)),
        ("encoding=mulaw&sample_rate=8000&channels=2&multichannel=true", SessionOptions(encoding="mulaw", sample_rate=8000, channels=2, multichannel=True, partials=False, silence_ms=1000)),
        ("encoding=ogg-opus", SessionOptions(encoding="container", partials=False, silence_ms=1000)),
        ("language=en-US&interim_results=true&utterance_end_ms=1500", SessionOptions(silence_ms=1500)),
        ("language=multi&endpointing=25", SessionOptions(endpointing_ms=200, partials=False, silence_ms=1000)),
        ("endpointing=700", SessionOptions(endpointing_ms=700, partials=False, silence_ms=1000)),
        ("endpointing=false", SessionOptions(endpointing_ms=3000, partials=False, silence_ms=1000)),
        ("endpointing=true", SessionOptions(partials=False, silence_ms=1000)),
    ],
)  # fmt: skip
def test_a_query_becomes_the_options_of_a_session(query, options):
    assert wants(query).options == options


@pytest.mark.parametrize(
    ("query", "complaint"),
    [
        (
            "encoding=g729",
            "encoding: 'g729' can't be decoded here: send linear16, linear32, mulaw, alaw with",
        ),
        ("encoding=linear16", "sample_rate: required with encoding=linear16"),
        ("sample_rate=96000", "sample_rate: must be a whole number from 8000 to 48000, got '96000'"),
        ("channels=two", "channels: must be a whole number from 1 to 8, got 'two'"),
        ("language=de", "language: must be one of en (also with a region) or multi, got 'de'"),
        ("interim_results=yes", "interim_results: must be true or false, got 'yes'"),
        ("endpointing=soon", "endpointing: must be milliseconds, true or false, got 'soon'"),
        ("utterance_end_ms=500", "utterance_end_ms: must be a whole number from 1000 to 60000, got '500'"),
        ("callback=https://example.com", "callback: results are sent on this connection only"),
        ("multichannel=true", "channels: required with multichannel"),
        ("redact=pci", "redact: nothing would be redacted"),
    ],
)
def test_a_wrong_parameter_is_named_with_what_would_be_right(query, complaint):
    with pytest.raises(BadInput) as caught:
        wants(query)

    assert str(caught.value).startswith(complaint)


def test_what_livekit_sends_is_tolerated():
    query = (
        "model=nova-3&punctuate=true&smart_format=false&no_delay=true&interim_results=true&encoding=linear16"
        "&vad_events=true&sample_rate=16000&channels=1&endpointing=25&filler_words=true&profanity_filter=false"
        "&numerals=false&mip_opt_out=false&keyterm=a&keyterm=b&language=en-US"
    )

    assert wants(query).model == "nova-3"


NUMBERS = [
    "endpointing",
    "sample_rate",
    "channels",
    "utterance_end_ms",
    "utt_split",
    "encoding",
    "language",
    "multichannel",
]


@given(st.dictionaries(st.sampled_from(NUMBERS), st.text("0123456789.-+e²٣ infatrueslm", max_size=11)))
def test_any_query_is_understood_or_refused(fields):
    query = QueryParams(fields)

    with suppress(BadInput):
        for understood in (asked(query), asked_of_recording(query, 2)):
            SessionOptions.model_validate(understood.options.model_dump())


# What the client says.


def test_a_session_begins_at_once_with_what_the_query_asks_for():
    assert list(Deepgram(head("sample_rate=8000")).greet()) == [Begin(wants("sample_rate=8000").options)]


def test_messages_become_what_is_said_to_a_session():
    dialect = Deepgram(head())

    assert list(dialect.hear(b"\1\2")) == [Audio(b"\1\2")]
    assert said(dialect, {"type": "KeepAlive"}) == []
    assert said(dialect, {"type": "Finalize"}) == [Flush()]
    assert said(dialect, {"type": "Finalize", "channel": 0}) == [Flush(id="0")]
    assert said(dialect, {"type": "CloseStream"}) == [EndOfAudio()]


def test_an_empty_binary_frame_is_the_end_and_what_comes_after_it_is_ignored():
    dialect = Deepgram(head())

    assert list(dialect.hear(b"")) == [EndOfAudio()]
    assert (
        list(dialect.hear(b"\1\2"))
        == said(dialect, {"type": "KeepAlive"})
        == said(dialect, {"type": "CloseStream"})
        == []
    )


@pytest.mark.parametrize(
    "text",
    ["{", "[]", "null", '{"type": "Flush"}', '{"type": "Finalize", "channel": 1}', '{"type": "Finalize", "channel": true}',
     '{"type": "Configure", "keyterms": "a"}', '{"type": "Configure", "features": {"numerals": 1}}', "[" * 10_000, " " * 20_000],
)  # fmt: skip
def test_a_text_message_that_is_none_of_theirs_is_answered_with_a_schema_error(text):
    (reply,) = Deepgram(head()).hear(text)

    assert isinstance(reply, Reply)
    error = json.loads(reply.message)
    assert (error["type"], error["variant"]) == ("Error", "SchemaError")
    assert "KeepAlive, Finalize, CloseStream or Configure" in error["description"]
    assert error["message"] == text[:1000]


@pytest.mark.parametrize(
    ("fields", "answer"),
    [
        ({"features": {"numerals": True}}, {"type": "ConfigureSuccess"}),
        ({"keyterms": []}, {"type": "ConfigureSuccess", "keyterms": []}),
        ({"keyterms": None}, {"type": "ConfigureSuccess"}),
        ({"keyterms": ["Ada"]}, {"type": "ConfigureFailure", "code": "CONFIGURE_KEYTERMS_NOT_SUPPORTED", "description": "this fleet's model knows no keyterms"}),
    ],
)  # fmt: skip
def test_configure_is_answered_and_does_not_promise_keyterms(fields, answer):
    (reply,) = said(Deepgram(head()), {"type": "Configure", **fields})

    got = json.loads(reply.message)
    assert got.pop("request_id")
    assert got == answer


@pytest.mark.parametrize(
    ("offered", "secret"),
    [
        (["token", "K"], "K"),
        (["bearer", "J.W.T"], "J.W.T"),
        (["token"], None),
        (["soap", "K"], None),
        ([], None),
    ],
)
def test_a_browser_offers_its_secret_as_a_subprotocol(offered, secret):
    assert Deepgram.secret(head(protocols=offered)) == secret


# What it is told.


def test_a_final_has_its_words_bare_and_as_written_and_begins_where_the_last_result_ended():
    (results,) = told(Deepgram(head("model=nova-3")), *SPOKEN)

    assert results.pop("metadata")["model_info"]["name"] == "nova-3"
    assert results == {
        "type": "Results",
        "channel_index": [0, 1],
        "start": 0.0,
        "duration": 1.5,
        "is_final": True,
        "speech_final": True,
        "from_finalize": False,
        "channel": {
            "alternatives": [
                {
                    "transcript": "Hello, World!",
                    "confidence": 0.9,
                    "words": [
                        {"word": "hello", "start": 0.4, "end": 0.9, "confidence": 0.8, "punctuated_word": "Hello,"},
                        {"word": "world", "start": 0.9, "end": 1.3, "confidence": 0.0, "punctuated_word": "World!"},
                    ],
                }
            ]
        },
    }  # fmt: skip


def test_an_interim_results_words_are_spread_and_certain_where_they_are_stable():
    partial = Partial(**S, utterance=1, text="ab cd", stable=2, start_ms=1000, end_ms=2000)

    (results,) = told(Deepgram(head()), partial)

    assert (results["is_final"], results["speech_final"], results["start"], results["duration"]) == (
        False,
        False,
        0,
        2,
    )
    (alternative,) = results["channel"]["alternatives"]
    assert (alternative["transcript"], alternative["confidence"]) == ("ab cd", 0.5)
    assert [(w["word"], w["start"], w["end"], w["confidence"]) for w in alternative["words"]] == [
        ("ab", 1.0, 1.4, 1.0),
        ("cd", 1.6, 2.0, 0.0),
    ]


def windows(messages: list[dict]) -> list[tuple[float, float]]:
    return [(m["start"], round(m["start"] + m["duration"], 3)) for m in messages if m.get("is_final")]


def test_final_results_tile_the_timeline():
    dialect = Deepgram(head())

    messages = told(
        dialect,
        Silence(**S, start_ms=0, end_ms=1000),
        *SPOKEN,
        Gap(**S, start_ms=1600, end_ms=1700, reason="client_too_fast"),
        Silence(**S, start_ms=1700, end_ms=2700),
        Flushed(**S, flush_id="", through_ms=3000),
        End(**S, audio_ms=4000, speech_ms=1200, utterances=1),
    )

    assert windows(messages) == [(0, 0.5), (0.5, 1.5), (1.5, 2.2), (2.2, 3.0), (3.0, 4.0)]
    assert [m["speech_final"] for m in messages[:-1]] == [False, True, False, False, False]


SPANS = st.lists(
    st.tuples(st.booleans(), st.sampled_from([1, 3, 11, 12, 13, 30]), st.booleans()), min_size=1, max_size=8
)


@settings(max_examples=40, deadline=None)
@given(SPANS)
def test_whatever_is_said_and_finalized_results_tile_the_stream_and_hold_their_words(spans):
    """Spans of 100 ms: whether somebody speaks, how many, whether a Finalize follows."""
    dialect = Deepgram(head("utterance_end_ms=1000"))
    chunks: list[AudioChunk] = []
    for loud, length, finalize in spans:
        chunks += audio_chunks((speech if loud else silence)(length / 10))[:-1]
        if finalize:
            chunks.append(AudioChunk("flush", b""))
            said(dialect, {"type": "Finalize"})
    events = Pipeline(stages(), dialect.greet()[0].request).run([*chunks, AudioChunk("end", b"")], [3] * 99)

    messages = told(dialect, *(EVENT_ADAPTER.validate_python({**S, **event}) for event in events))

    placed = windows(messages)
    assert [start for start, _ in placed] == [0.0, *(end for _, end in placed[:-1])]
    assert placed[-1][1] == sum(length for _, length, _ in spans) / 10
    assert sum(m.get("from_finalize", False) for m in messages) == sum(finalize for *_, finalize in spans)
    for results in (m for m in messages if m.get("is_final") and m["channel"]["alternatives"][0]["words"]):
        words = results["channel"]["alternatives"][0]["words"]
        assert results["start"] <= words[0]["start"]
        assert words[-1]["end"] <= round(results["start"] + results["duration"], 3)


def test_a_finalize_with_nothing_said_is_answered_by_an_empty_result():
    dialect = Deepgram(head())
    said(dialect, {"type": "Finalize"})

    (results,) = told(dialect, Flushed(**S, flush_id="", through_ms=700))

    assert (results["from_finalize"], results["is_final"], results["speech_final"]) == (True, True, False)
    assert results["channel"]["alternatives"] == [{"transcript": "", "confidence": 0.0, "words": []}]


def test_the_final_that_a_finalize_closed_is_its_answer():
    dialect = Deepgram(head())
    said(dialect, {"type": "Finalize"})

    (results,) = told(dialect, *SPOKEN, Flushed(**S, flush_id="", through_ms=1500))

    assert (results["from_finalize"], results["is_final"], results["speech_final"]) == (True, True, True)
    assert results["channel"]["alternatives"][0]["transcript"] == "Hello, World!"


def test_a_final_from_before_a_finalize_is_told_as_soon_as_that_is_known():
    dialect = Deepgram(head())
    said(dialect, {"type": "Finalize"})

    messages = told(dialect, *SPOKEN, SpeechStart(**S, utterance=2, start_ms=2000))

    assert [(m["from_finalize"], m["speech_final"]) for m in messages] == [(False, True)]


def test_a_finalize_of_one_channel_is_answered_on_that_channel_only():
    dialect = Deepgram(head("channels=2&multichannel=true"))
    said(dialect, {"type": "Finalize", "channel": 1})

    first = told(dialect, *SPOKEN, Flushed(**S, flush_id="1", through_ms=1500), channel=0)
    second = told(dialect, Flushed(**S, flush_id="1", through_ms=1500), channel=1)

    assert [(m["channel_index"], m["from_finalize"]) for m in first + second] == [
        ([0, 2], False),
        ([1, 2], True),
    ]


def test_the_start_of_speech_is_told_to_those_who_ask():
    start = SpeechStart(**S, utterance=1, start_ms=300)

    assert told(Deepgram(head()), start) == []
    assert told(Deepgram(head("vad_events=true")), start) == [
        {"type": "SpeechStarted", "channel": [0, 1], "timestamp": 0.3}
    ]


def test_the_end_of_an_utterance_is_told_once_and_only_after_words():
    dialect = Deepgram(head("utterance_end_ms=1000"))

    messages = told(
        dialect,
        Silence(**S, start_ms=0, end_ms=1000),
        *SPOKEN,
        Silence(**S, start_ms=1300, end_ms=2300),
        SpeechStart(**S, utterance=2, start_ms=2500),
        final(2, 2500, 3000),
        SpeechEnd(**S, utterance=2, end_ms=3000),
        Silence(**S, start_ms=3000, end_ms=4000),
    )

    ends = [m for m in messages if m["type"] == "UtteranceEnd"]
    assert ends == [{"type": "UtteranceEnd", "channel": [0, 1], "last_word_end": 1.3}]
    assert messages.index(ends[0]) > next(i for i, m in enumerate(messages) if m.get("speech_final"))


def test_the_end_of_an_utterance_that_endpointing_leaves_open_is_the_end_of_speech():
    dialect = Deepgram(head("utterance_end_ms=1000&endpointing=false&interim_results=true"))
    partial = Partial(**S, utterance=1, text="ab", stable=0, start_ms=300, end_ms=2000)

    messages = told(dialect, SPOKEN[0], partial, Silence(**S, start_ms=1600, end_ms=2600))

    assert messages[1:] == [{"type": "UtteranceEnd", "channel": [0, 1], "last_word_end": 1.6}]


def test_the_summary_comes_once_after_the_last_channels_end():
    dialect = Deepgram(head("channels=2&multichannel=true"))
    dialect.hear(b"abc")
    end = End(**S, audio_ms=1500, speech_ms=0, utterances=0)

    first, second = told(dialect, *SPOKEN, end, channel=1), told(dialect, end, channel=0)

    assert [m["type"] for m in first + second] == ["Results", "Results", "Metadata"]
    summary = second[-1]
    assert summary.pop("request_id")
    assert summary.pop("created").endswith("Z")
    assert summary == {
        "type": "Metadata",
        "transaction_key": "deprecated",
        "sha256": "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
        "duration": 1.5,
        "channels": 2,
    }
    assert dialect.close(None).code == 1000


def test_a_session_that_fails_is_an_error_and_an_internal_close():
    dialect = Deepgram(head())

    assert told(dialect, ErrorEvent(**S, code="stage_failed", message="sorry")) == [
        {"type": "Error", "variant": "stage_failed", "description": "sorry"}
    ]
    assert dialect.close(None) == (1011, "NET-0000")


@pytest.mark.parametrize(
    ("error", "code", "reason"),
    [
        (Silent("x"), 1011, "Deepgram did not receive audio data or a text message within the timeout window. See https://dpgr.am/net0001"),
        (BadInput("text arrived"), 1008, "DATA-0000: text arrived"),
        (BadInput("ä" * 200), 1008, "DATA-0000: " + "ä" * 56),
        (QuotaExceeded("an hour a day"), 1008, "an hour a day"),
        (Replaced("elsewhere"), 1008, "elsewhere"),
        (RedisUnavailable("10.0.0.1 is away"), 1011, "NET-0000"),
    ],
)  # fmt: skip
def test_why_a_socket_is_closed_is_said_in_deepgrams_words(error, code, reason):
    assert Deepgram(head()).close(error) == (code, reason)


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (BadInput("language: must be en"), 400, "Bad Request"),
        (Unauthorized("who?"), 401, "INVALID_AUTH"),
        (Forbidden("no"), 403, "INSUFFICIENT_PERMISSIONS"),
        (QuotaExceeded("too many"), 429, "TOO_MANY_REQUESTS"),
        (Overloaded("later", retry_after_s=3.2), 503, "SERVICE_UNAVAILABLE"),
    ],
)
def test_who_is_not_let_in_hears_it_as_from_deepgram(error, status, code):
    answer = Deepgram.response(error)

    body = json.loads(answer.body)
    assert (answer.status_code, body["err_code"], body["err_msg"]) == (status, code, str(error))
    assert answer.headers["dg-error"] == str(error)
    assert answer.headers["dg-request-id"] == body["request_id"]
    assert answer.headers.get("retry-after") == {429: "1", 503: "4"}.get(status)


# Recorded.


@pytest.mark.parametrize(
    ("query", "options"),
    [
        ("interim_results=true&endpointing=10", SessionOptions(encoding="container", partials=False)),
        ("utterances=true", SessionOptions(encoding="container", endpointing_ms=800, partials=False)),
        ("utterances=true&utt_split=1.2", SessionOptions(encoding="container", endpointing_ms=1200, partials=False)),
        ("multichannel=true&tag=a&tag=b", SessionOptions(encoding="container", channels=2, multichannel=True, partials=False)),
        ("encoding=mulaw&sample_rate=8000", SessionOptions(encoding="mulaw", sample_rate=8000, partials=False)),
    ],
)  # fmt: skip
def test_a_recordings_query_becomes_the_options_of_a_session(query, options):
    assert asked_of_recording(QueryParams(query), 2).options == options


KNOWN = {"request_id": "r", "created": "now", "sha256": "00", "duration_ms": 4000}
AGAIN = final(2, 2000, 3000, Word(text="Bye.", start_ms=2100, end_ms=2500, confidence=0.7))


def test_a_recording_is_answered_with_the_transcript_of_each_channel():
    answer = transcript(
        wants("model=nova-3&tag=a&tag=b"), [[HELLO, final(2, 1600, 1700), AGAIN], []], **KNOWN
    )

    first, second = (channel["alternatives"] for channel in answer["results"]["channels"])
    assert (first[0]["transcript"], first[0]["confidence"]) == ("Hello, World! Bye.", 0.5)
    assert [word["start"] for word in first[0]["words"]] == [0.4, 0.9, 2.1]
    assert second == [{"transcript": "", "confidence": 0.0, "words": []}]
    assert "utterances" not in answer["results"]
    metadata = answer["metadata"]
    assert (metadata["duration"], metadata["channels"], metadata["tags"]) == (4.0, 2, ["a", "b"])
    assert [metadata["model_info"][model]["name"] for model in metadata["models"]] == ["nova-3"]


def test_utterances_are_listed_in_the_order_in_which_they_were_spoken():
    answer = transcript(
        wants("utterances=true"), [[HELLO, AGAIN], [final(1, 1800, 1900, *HELLO.words)]], **KNOWN
    )

    listed = [
        (each["channel"], each["start"], each["transcript"]) for each in answer["results"]["utterances"]
    ]
    assert listed == [(0, 0.3, "Hello, World!"), (1, 1.8, "Hello, World!"), (0, 2.0, "Bye.")]
