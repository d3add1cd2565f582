"""FunASR's 2pass protocol without a socket: fragments, sentences, the last result and its acknowledgement."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.requests import HTTPConnection

from gateway.dialects.base import Audio, Begin
from gateway.dialects.funasr import FunAsr
from gateway.dialects.root import Root
from gateway.dialects.vosk import Vosk
from shared.errors import BadInput
from shared.events import End, ErrorEvent, Final, Flushed, Partial, Word
from shared.protocol import EndOfAudio, Flush

STOP = '{"is_speaking": false}'
STOP_AND_ACKNOWLEDGE = '{"is_speaking": false, "is_end": true}'
END = End(session="s", audio_ms=0, speech_ms=0, utterances=0)


def head(*subprotocols: str) -> HTTPConnection:
    scope = {"type": "websocket", "path": "/", "query_string": b"", "headers": []}
    return HTTPConnection(scope | {"subprotocols": list(subprotocols)})


def start(**config: Any) -> str:
    return json.dumps({"mode": "2pass", "chunk_size": [5, 10, 5], "is_speaking": True} | config)


def speaking(**config: Any) -> FunAsr:
    """A client that has sent its config and some audio."""
    client = FunAsr(head())
    client.hear(start(wav_name="a", **config))
    client.hear(b"0000")
    return client


def partial(text: str, stable: int) -> Partial:
    return Partial(session="s", utterance=1, text=text, stable=stable, start_ms=0, end_ms=0)


def final(text: str, start_ms: int = 0) -> Final:
    words = [
        Word(text=word, start_ms=start_ms + 100 * at, end_ms=start_ms + 100 * at + 90)
        for at, word in enumerate(text.split())
    ]
    return Final(
        session="s", utterance=1, text=text, stable=len(text), start_ms=start_ms, end_ms=0, words=words
    )


def flushed(through_ms: int = 0) -> Flushed:
    return Flushed(session="s", flush_id="", through_ms=through_ms)


def told(client: Any, *events: Any) -> list[dict[str, Any]]:
    return [json.loads(message) for event in events for message in client.tell(event, 0)]


def test_a_conversation():
    client = FunAsr(head())
    assert client.hear(start(wav_name="a", audio_fs=8000, hotwords='{"x": 20}', itn=True)) == ()
    begin, audio = client.hear(b"0000")
    assert (begin.request.sample_rate, begin.request.encoding, audio) == (8_000, "auto", Audio(b"0000"))

    assert told(client, partial("Hello wor", 5), partial("Hello world", 11), partial("Hello world", 11)) == [
        {"mode": "2pass-online", "text": "Hello", "wav_name": "a", "is_final": False},
        {"mode": "2pass-online", "text": " world", "wav_name": "a", "is_final": False},
    ]
    assert told(client, final("Hello world, yes.")) == [
        {
            "mode": "2pass-offline",
            "text": "Hello world, yes.",
            "wav_name": "a",
            "is_final": False,
            "timestamp": "[[0, 90], [100, 190], [200, 290]]",
            "stamp_sents": [
                {
                    "text_seg": "Hello world",
                    "punc": ",",
                    "start": 0,
                    "end": 190,
                    "ts_list": [[0, 90], [100, 190]],
                },
                {"text_seg": "yes", "punc": ".", "start": 200, "end": 290, "ts_list": [[200, 290]]},
            ],
        }
    ]
    assert told(client, partial("Bye", 3))[0]["text"] == " Bye"
    assert client.hear(STOP_AND_ACKNOWLEDGE) == (Flush(),)
    assert told(client, final("Bye now")) == []
    last, acknowledgement = told(client, flushed())
    assert (last["text"], last["is_final"], "is_end" in last) == (" Bye now", True, False)
    assert last["stamp_sents"][0]["punc"] == ""
    assert acknowledgement == {
        "mode": "2pass-offline",
        "text": "",
        "wav_name": "a",
        "is_final": True,
        "is_end": True,
    }
    assert client.close(None) == (1000, "")


UTTERANCES = st.lists(st.lists(st.sampled_from(["one", "two,", "three."]), max_size=6), max_size=5)


@settings(deadline=None)
@given(UTTERANCES, st.integers(0, 5), st.data())
def test_what_clients_concatenate_is_what_was_said(utterances, stop_at, data):
    """As the official client shows it: fragments after the sentences so far, until a sentence comes whole."""
    texts = [" ".join(words) for words in utterances]
    clients = {mode: speaking(mode=mode) for mode in ("2pass", "online", "offline")}
    heard: dict[str, list[dict[str, Any]]] = {mode: [] for mode in clients}
    fixed, shown = "", ""
    for number, text in enumerate(texts):
        stables = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=4)))
        for event in [*(partial(text, stable) for stable in stables), final(text)]:
            for mode, client in clients.items():
                if number == stop_at and event.type == "final":
                    client.hear(STOP)
                heard[mode] += told(client, event)
    for mode, client in clients.items():
        if stop_at >= len(texts):
            client.hear(STOP)
        heard[mode] += told(client, flushed())
        assert [message["is_final"] for message in heard[mode]] == [False] * (len(heard[mode]) - 1) + [True]

    whole = " ".join(text for text in texts if text)
    for message in heard["2pass"]:
        if message["mode"] == "2pass-online":
            shown += message["text"]
        else:
            shown = fixed = fixed + message["text"]
        assert whole.startswith(shown)
    assert fixed == whole
    assert "".join(message["text"] for message in heard["online"]) == whole
    assert [message["text"] for message in heard["offline"]] == [whole]


def test_the_last_message_is_final_even_when_it_is_empty():
    client = FunAsr(head())
    assert isinstance(client.hear(STOP)[0], Begin)
    assert told(client, flushed()) == [
        {"mode": "2pass-offline", "text": "", "wav_name": "microphone", "is_final": True}
    ]


def test_every_end_is_answered_and_only_those_that_ask_are_acknowledged():
    client = speaking()
    for stop in (STOP, STOP_AND_ACKNOWLEDGE, start(is_finished=True)):
        client.hear(stop)

    messages = told(client, flushed(), flushed(), flushed())

    assert ["is_end" in message for message in messages] == [False, False, True, False]
    assert all(message["is_final"] for message in messages)


def test_each_file_of_a_connection_has_its_name_and_its_times():
    client = speaking()
    client.hear(STOP)
    client.hear(start(wav_name="b", mode="online"))
    client.hear(b"1111")

    assert told(client, final("One.", 500), flushed(2_000))[0]["wav_name"] == "a"
    (message,) = told(client, final("Two.", 2_300))
    assert (message["wav_name"], message["text"], message["mode"]) == ("b", "Two.", "online")

    client.hear(STOP)
    client.hear(start(wav_name="c", mode="2pass"))
    told(client, flushed(5_000))
    assert told(client, final("Three.", 5_100))[0]["timestamp"] == "[[100, 190]]"


def test_a_microphone_that_goes_on_after_a_pause_needs_no_new_config():
    client = speaking(mode="online")
    client.hear(STOP)
    told(client, final("One."), flushed())
    client.hear('{"is_speaking": true}')
    client.hear(b"1111")
    assert told(client, final("Two."))[0]["wav_name"] == "a"


def test_what_is_no_pcm_is_a_container_and_takes_the_connection():
    client = FunAsr(head())
    client.hear(start(mode="offline", wav_format="mp3"))
    begin, _ = client.hear(b"ID3")
    assert (begin.request.encoding, begin.request.partials) == ("container", False)
    assert client.hear(STOP) == (EndOfAudio(),)
    with pytest.raises(BadInput, match="connection of its own"):
        client.hear(b"ID3")

    (message,) = told(client, final("Yes."), END)
    assert (message["text"], message["is_final"]) == ("Yes.", True)


def test_what_a_containers_end_had_wrong_comes_with_its_last_result():
    client = FunAsr(head())
    client.hear(start(wav_format="mp3"))
    client.hear(b"ID3")
    client.hear(STOP_AND_ACKNOWLEDGE)
    assert client.refuse(BadInput("it was cut")) == ()

    last, acknowledgement = told(client, final("Yes."), END)

    assert (last["text"], last["is_final"], last["error"]) == ("Yes.", True, "it was cut")
    assert (acknowledgement["is_final"], acknowledgement["error"]) == (False, "it was cut")


@pytest.mark.parametrize(
    ("message", "names"),
    [
        (start(audio_fs=8000), "16000 Hz: open another for pcm of 8000 Hz"),
        (start(wav_format="mp3"), "open another for mp3"),
        (start(mode="3pass"), "mode"),
        (start(audio_fs=1), "audio_fs"),
        ('["is_speaking"]', "JSON"),
        ("[" * 100_000, "JSON"),
    ],
)
def test_what_is_not_possible_is_named(message, names):
    with pytest.raises(BadInput, match=names):
        speaking().hear(message)


@pytest.mark.parametrize("acknowledge", [True, False])
def test_an_error_releases_a_client_that_waits(acknowledge):
    client = speaking()
    client.hear(STOP_AND_ACKNOWLEDGE if acknowledge else STOP)
    event = ErrorEvent(session="s", code="stage_failed", message="it failed")

    by_event, by_refusal = told(client, event)[0], json.loads(client.refuse(BadInput("it failed"))[0])

    assert by_event == by_refusal
    assert by_event["error"] == "it failed"
    assert (by_event.get("is_end", False), by_event["is_final"]) == (acknowledge, not acknowledge)
    assert client.close(BadInput("it failed")) == (1008, "it failed")


def test_the_html5_page_gets_no_times_which_it_would_stumble_over():
    client = FunAsr(head())
    client.hear(start(wav_name="h5"))
    assert "timestamp" not in told(client, final("It's."))[0]


def test_old_spellings_are_understood():
    client = FunAsr(head())
    client.hear(start(chunk_size="5, 10, 5", wav_format="PCM", hotwords=None, wav_name=7))
    assert client.hear(b"00")[0].request.encoding == "auto"
    assert told(client, final("Yes."))[0]["wav_name"] == "7"


@pytest.mark.parametrize(
    ("subprotocols", "first", "speaks"),
    [
        (["binary"], b"00", FunAsr),
        ([], start(), FunAsr),
        ([], STOP, FunAsr),
        ([], '{"config": {}}', Vosk),
        ([], b"00", Vosk),
        ([], '{"eof": 1}', Vosk),
    ],
)
def test_the_first_words_at_the_root_tell_which_protocol_it_is(subprotocols, first, speaks):
    client = Root(head(*subprotocols))
    client.hear(first)
    assert type(client._speaks) is speaks


LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters())
KEYS = st.sampled_from(
    ["config", "eof", "reset", "is_speaking", "is_end", "mode", "wav_name", "wav_format", "audio_fs"]
)
OBJECTS = st.dictionaries(
    KEYS | st.text(), st.recursive(LEAVES, st.lists, max_leaves=4) | st.just({"words": 0})
)


@settings(deadline=None)
@given(st.lists(st.binary() | st.text() | OBJECTS.map(json.dumps), max_size=6))
def test_whatever_is_said_at_the_root_is_understood_or_refused_in_words(messages):
    client, refused = Root(head()), None
    for message in messages:
        try:
            client.hear(message)
        except BadInput as error:
            refused = error
            break
    code, reason = client.close(refused)
    assert (code, len(reason.encode())) == (1000, 0) or (code == 1008 and 0 < len(reason.encode()) <= 123)
    assert all(text.encode() for text in client.refuse(refused or BadInput("x")))


def test_a_name_that_is_no_text_is_refused():
    with pytest.raises(BadInput, match="wav_name"):
        FunAsr(head()).hear('{"wav_name": "\\ud800"}')
