"""Vosk-server's protocol without a socket: which reply comes when, and what is in it."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.requests import HTTPConnection

from gateway.dialects.base import Audio, Begin, Reply
from gateway.dialects.vosk import Vosk
from shared.errors import BadInput, Overloaded, StageFailed
from shared.events import End, Final, Flushed, Partial, SpeechStart, Word
from shared.protocol import EndOfAudio, Flush

SPAN = {"session": "s", "start_ms": 0, "end_ms": 900}
EOF = '{"eof" : 1}'
RESET = '{"reset" : 1}'
END = End(session="s", audio_ms=0, speech_ms=0, utterances=0)
FLUSHED = Flushed(session="s", flush_id="")


def vosk(query: str = "") -> Vosk:
    scope = {"type": "websocket", "path": "/", "query_string": query.encode(), "headers": []}
    return Vosk(HTTPConnection(scope))


def partial(text: str) -> Partial:
    return Partial(**SPAN, utterance=1, text=text, stable=0)


def final(text: str, confidence: float | None = 0.9) -> Final:
    words = [
        Word(text=word, start_ms=100 * at, end_ms=100 * at + 90, confidence=confidence)
        for at, word in enumerate(text.split())
    ]
    return Final(**SPAN, utterance=1, text=text, stable=len(text), confidence=confidence, words=words)


def replies(said: Any) -> list[dict[str, Any]]:
    return [json.loads(each.message) for each in said if isinstance(each, Reply)]


def told(messages: Any) -> list[dict[str, Any]]:
    return [json.loads(message) for message in messages]


def options(said: Any) -> Any:
    return next(each.request for each in said if isinstance(each, Begin))


def test_a_conversation():
    client = vosk()
    assert client.hear('{ "config" : { "sample_rate" : 16000.000000 } }') == ()

    begin, audio, reply = client.hear(b"1234")
    assert (begin.request.sample_rate, begin.request.encoding) == (16_000, "auto")
    assert (audio, reply) == (Audio(b"1234"), Reply('{"partial": ""}'))

    client.tell(SpeechStart(session="s", utterance=1, start_ms=0), 0)
    client.tell(partial("It's"), 0)
    assert client.hear(b"56") == (Audio(b"56"), Reply('{"partial": "it\'s"}'))

    assert client.tell(final("It's nine."), 0) == ()
    client.tell(partial("Wake"), 0)
    assert replies(client.hear(b"78")) == [
        {
            "result": [
                {"conf": 0.9, "end": 0.09, "start": 0.0, "word": "it's"},
                {"conf": 0.9, "end": 0.19, "start": 0.1, "word": "nine"},
            ],
            "text": "it's nine",
        }
    ]
    assert replies(client.hear(b"90")) == [{"partial": "wake"}]

    assert client.hear(EOF) == (EndOfAudio(),)
    client.tell(final("Wake up!"), 0)
    assert [reply["text"] for reply in told(client.tell(END, 0))] == ["wake up"]
    assert client.close(None) == (1000, "")


STEPS = st.lists(st.sampled_from(["frame", "reset", "partial", "final", "flushed"]), max_size=60)


@settings(deadline=None)
@given(STEPS)
def test_every_frame_and_reset_has_one_reply_in_order_and_no_final_is_lost(steps):
    client, asked, spoken = vosk(), [], []
    answers, flushes = [], 0
    for number, step in enumerate([*steps, "eof"]):
        if message := {"frame": b"00", "reset": RESET, "eof": EOF}.get(step):
            asked.append(step)
            answers += replies(client.hear(message))
            flushes += step == "reset"
        elif step == "final":
            spoken.append(f"f{number}")
            answers += told(client.tell(final(spoken[-1]), 0))
        elif step == "partial":
            answers += told(client.tell(partial(f"p{number}"), 0))
        elif flushes:
            flushes -= 1
            answers += told(client.tell(FLUSHED, 0))
    for event in [*[FLUSHED] * flushes, END]:
        answers += told(client.tell(event, 0))

    assert len(answers) == len(asked)
    for step, answer in zip(asked, answers, strict=True):
        assert "text" in answer or step == "frame"
    assert " ".join(answer["text"] for answer in answers if answer.get("text")) == " ".join(spoken)


def test_what_is_sent_behind_a_reset_is_answered_behind_it():
    client = vosk()
    client.hear(b"00")
    assert client.hear(RESET) == (Flush(),)
    assert client.hear(b"11") == (Audio(b"11"),)
    assert client.hear(b"22") == (Audio(b"22"),)
    client.tell(final("one"), 0)
    client.tell(final("two"), 0)

    answers = told(client.tell(FLUSHED, 0))

    assert [answer.get("text", answer) for answer in answers] == ["one two", {"partial": ""}, {"partial": ""}]
    assert replies(client.hear(b"33")) == [{"partial": ""}]


@pytest.mark.parametrize("eof", [EOF, '{"eof":1}', '{"eof": true}', b'{"eof" : 1}', '\n{ "eof" : 1.0 }'])
def test_the_end_may_be_spelled_anyhow_and_sent_in_a_binary_frame(eof):
    client = vosk()
    client.hear(b"00")
    assert client.hear(eof) == (EndOfAudio(),)


def test_an_end_without_audio_is_an_empty_final():
    client = vosk()
    assert isinstance(client.hear(EOF)[0], Begin)
    assert client.tell(END, 0) == ('{"text": ""}',)


def test_nothing_after_the_end_is_heard():
    client = vosk()
    client.hear(EOF)
    assert (client.hear(b"00"), client.hear(EOF), client.hear("what?")) == ((), (), ())


def test_the_rate_is_8_khz_unless_the_client_says_otherwise():
    assert options(vosk().hear(b"00")).sample_rate == 8_000
    assert options(vosk("sample_rate=16000").hear(b"00")).sample_rate == 16_000
    client = vosk("sample_rate=16000")
    client.hear('{"config": {"sample_rate": "44100.0", "phrase_list": ["yes", "[unk]"], "model": "/x"}}')
    assert options(client.hear(b"00")).sample_rate == 44_100


@pytest.mark.parametrize(
    ("message", "names"),
    [
        ('{"config": {"sample_rate": 4000}}', "sample_rate"),
        ('{"config": {"sample_rate": NaN}}', "sample_rate"),
        ('{"config": {"words": "many"}}', "words"),
        ('{"config": [1]}', "object of settings"),
        ('{"keepalive": 1}', "keepalive"),
        ("{}", "eof"),
        ("eof", "JSON"),
        ("[" * 100_000, "JSON"),
    ],
)
def test_what_is_not_understood_is_named(message, names):
    with pytest.raises(BadInput, match=names):
        vosk().hear(message)


def test_a_query_that_makes_no_sense_is_refused():
    with pytest.raises(BadInput, match="query: sample_rate"):
        vosk("sample_rate=1")


def test_the_rate_cant_change_once_there_is_audio():
    client = vosk()
    client.hear(b"00")
    assert client.hear('{"config": {"sample_rate": 8000, "words": 0}}') == ()
    with pytest.raises(BadInput, match="before the first audio"):
        client.hear('{"config": {"sample_rate": 16000}}')


def test_without_words_there_is_only_text():
    client = vosk()
    client.hear('{"config": {"words": 0}}')
    client.tell(final("Yes."), 0)
    assert replies(client.hear(b"00")) == [{"text": "yes"}]


def test_alternatives_are_one():
    client = vosk()
    client.hear('{"config": {"max_alternatives": 3}}')
    client.tell(final("Yes.", confidence=0.7), 0)
    client.tell(final("No.", confidence=0.6), 0)

    assert client.hear(b"00")[-1] == Reply(
        '{"alternatives": [{"confidence": 0.7, "text": "yes", "result": [{"end": 0.09, "start": 0.0, "word": "yes"}]}]}'
    )
    client.hear(EOF)
    client.tell(final("Oh", confidence=None), 0)
    assert [each["confidence"] for each in told(client.tell(END, 0))[0]["alternatives"]] == [0.6]
    assert told(client.tell(END, 0)) == [{"alternatives": [{"confidence": 1.0, "text": ""}]}]


def test_capitals_and_punctuation_for_those_who_ask():
    client = vosk("plain=false")
    client.tell(final("“Yes,” she said — at 3.5."), 0)
    (reply,) = replies(client.hear(b"00"))
    assert reply["text"] == "“Yes,” she said — at 3.5."

    client = vosk()
    client.tell(final("“Yes,” she said — at 3.5."), 0)
    (reply,) = replies(client.hear(b"00"))
    assert reply["text"] == "yes she said at 3.5"
    assert " ".join(word["word"] for word in reply["result"]) == reply["text"]


def test_a_final_without_words_is_no_reply():
    client = vosk()
    client.tell(final(""), 0)
    client.tell(final("…"), 0)
    assert replies(client.hear(b"00")) == [{"partial": ""}]


def test_an_error_is_told_in_the_close_frame():
    client = vosk()
    assert client.refuse(BadInput("x")) == ()
    code, reason = client.close(BadInput("é" * 200))
    assert (code, reason) == (1008, "é" * 61)
    assert client.close(Overloaded("full"))[0] == 1013
    assert client.close(StageFailed("x"))[0] == 1013
