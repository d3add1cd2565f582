"""The OpenAI Realtime dialect as a translation: what a client says and is told, without a socket or a fleet."""

import base64
import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import HTTPConnection

from gateway.dialects.base import Audio, Begin, Reply
from gateway.dialects.openai_realtime import OpenAIRealtime
from shared.errors import BadInput, QuotaExceeded, RedisUnavailable, Unauthorized
from shared.events import ErrorEvent, Final, Flushed, Partial, SpeechEnd, SpeechStart, Word
from shared.protocol import Flush, SessionOptions

SECOND = 2 * 24_000
EARLY = bytes(SECOND // 5)  # enough to begin with


def head(headers: dict[str, str] | None = None, *, query: str = "", protocols: list[str] | None = None):
    raw = [(name.lower().encode(), value.encode()) for name, value in (headers or {}).items()]
    return HTTPConnection(
        {"type": "websocket", "headers": raw, "query_string": query.encode(), "subprotocols": protocols or []}
    )


def dialect(*, beta: bool = False, **session) -> OpenAIRealtime:
    talk = OpenAIRealtime(head({"OpenAI-Beta": "realtime=v1"} if beta else {}))
    talk.greet()
    if session:
        update(talk, session)
    return talk


def hear(talk, kind: str, **fields):
    return talk.hear(json.dumps({"type": kind, **fields}))


def replies(said) -> list[dict]:
    return [json.loads(each.message) for each in said if isinstance(each, Reply)]


def update(talk, heard: dict, **fields) -> dict:
    (answer,) = replies(hear(talk, "session.update", session={"audio": {"input": heard}} | fields))
    return answer


def append(talk, audio: bytes):
    return hear(talk, "input_audio_buffer.append", audio=base64.b64encode(audio).decode())


def commit(talk) -> tuple[str, list[dict]]:
    said = hear(talk, "input_audio_buffer.commit")
    (flush_id,) = [each.id for each in said if isinstance(each, Flush)]
    return flush_id, replies(said)


def told(talk, *events) -> list[dict]:
    return [json.loads(message) for event in events for message in talk.tell(event, 0)]


def started(n: int, start_ms: int) -> SpeechStart:
    return SpeechStart(session="s", utterance=n, start_ms=start_ms)


def partial(n: int, text: str, stable: int) -> Partial:
    return Partial(session="s", utterance=n, text=text, stable=stable, start_ms=0, end_ms=0)


def final(
    n: int, text: str, start_ms: int = 0, end_ms: int = 0, confidences: tuple[float, ...] = ()
) -> Final:
    words = [
        Word(text=word, start_ms=0, end_ms=0, confidence=value)
        for word, value in zip(text.split(), confidences, strict=False)
    ]
    return Final(
        session="s", utterance=n, text=text, stable=len(text), start_ms=start_ms, end_ms=end_ms, words=words
    )


def flushed(flush_id: str) -> Flushed:
    return Flushed(session="s", flush_id=flush_id)


def kinds(messages) -> list[str]:
    return [message["type"].rsplit(".", 1)[-1] for message in messages]


def deltas(messages) -> str:
    return "".join(message["delta"] for message in messages if message["type"].endswith(".delta"))


def completed(messages) -> list[dict]:
    return [message for message in messages if message["type"].endswith(".completed")]


def error_of(said) -> dict:
    (message,) = replies(said)
    assert message["type"] == "error"
    return message["error"]


# The whole conversation of one utterance, literally. X stands for what is drawn by chance.
GOLDEN = """
{"event_id": "event_X_1", "type": "session.created", "session": {"id": "sess_X", "object": "realtime.transcription_session", "type": "transcription", "audio": {"input": {"format": {"type": "audio/pcm", "rate": 24000}, "transcription": {"model": null, "language": "en"}, "noise_reduction": null, "turn_detection": {"type": "server_vad", "silence_duration_ms": 500}}}, "include": null}}
{"event_id": "event_X_2", "type": "session.updated", "session": {"id": "sess_X", "object": "realtime.transcription_session", "type": "transcription", "audio": {"input": {"format": {"type": "audio/pcmu"}, "transcription": {"model": "gpt-4o-transcribe", "language": "en"}, "noise_reduction": null, "turn_detection": {"type": "server_vad", "silence_duration_ms": 200}}}, "include": null, "notes": ["audio.input.turn_detection.threshold: not used", "audio.input.turn_detection.silence_duration_ms: 200 is used"]}}
{"event_id": "event_X_3", "type": "input_audio_buffer.speech_started", "item_id": "item_X_1", "audio_start_ms": 300}
{"event_id": "event_X_4", "type": "conversation.item.input_audio_transcription.delta", "item_id": "item_X_1", "content_index": 0, "delta": "It was"}
{"event_id": "event_X_5", "type": "input_audio_buffer.speech_stopped", "item_id": "item_X_1", "audio_end_ms": 2300}
{"event_id": "event_X_6", "type": "input_audio_buffer.committed", "item_id": "item_X_1", "previous_item_id": null}
{"event_id": "event_X_7", "type": "conversation.item.added", "previous_item_id": null, "item": {"id": "item_X_1", "object": "realtime.item", "type": "message", "status": "completed", "role": "user", "content": [{"type": "input_audio", "transcript": null}]}}
{"event_id": "event_X_8", "type": "conversation.item.done", "previous_item_id": null, "item": {"id": "item_X_1", "object": "realtime.item", "type": "message", "status": "completed", "role": "user", "content": [{"type": "input_audio", "transcript": null}]}}
{"event_id": "event_X_9", "type": "conversation.item.input_audio_transcription.delta", "item_id": "item_X_1", "content_index": 0, "delta": " the best."}
{"event_id": "event_X_10", "type": "conversation.item.input_audio_transcription.completed", "item_id": "item_X_1", "content_index": 0, "transcript": "It was the best.", "usage": {"type": "duration", "seconds": 2.0}}
""".strip()


def test_a_conversation_literally():
    talk = OpenAIRealtime(head())
    changes = {
        "format": {"type": "audio/pcmu"},
        "transcription": {"model": "gpt-4o-transcribe"},
        "turn_detection": {"type": "server_vad", "threshold": 0.6, "silence_duration_ms": 100},
    }
    said = [*talk.greet()]
    said += hear(talk, "session.update", session={"type": "transcription", "audio": {"input": changes}})
    said += append(talk, b"\xff" * 1_600)
    said += [
        Reply(message)
        for event in [
            started(1, 300),
            partial(1, "It was a pest", 6),
            final(1, "It was the best.", 300, 2_300),
            SpeechEnd(session="s", utterance=1, end_ms=2_300),
        ]
        for message in talk.tell(event, 0)
    ]

    spoken = "\n".join(each.message for each in said if isinstance(each, Reply))
    base = json.loads(spoken.split("\n")[0])["session"]["id"].removeprefix("sess_")
    assert spoken.replace(base, "X") == GOLDEN
    assert [each for each in said if not isinstance(each, Reply)] == [
        Begin(SessionOptions(sample_rate=8_000, encoding="mulaw", endpointing_ms=200)),
        Audio(b"\xff" * 1_600),
    ]


def test_the_beta_has_its_own_names():
    talk = OpenAIRealtime(head({"OpenAI-Beta": "realtime=v1"}))
    (created,) = replies(talk.greet())
    session = {
        "input_audio_format": "g711_alaw",
        "input_audio_transcription": {"model": "whisper-1", "language": "en"},
        "turn_detection": None,
    }
    (updated,) = replies(hear(talk, "transcription_session.update", session=session))
    said = append(talk, b"\xd5" * 1_600)
    flush_id, at_once = commit(talk)

    assert created["type"] == "transcription_session.created"
    assert created["session"]["input_audio_format"] == "pcm16"
    assert updated["type"] == "transcription_session.updated"
    assert updated["session"].items() >= session.items()
    assert said[0] == Begin(SessionOptions(sample_rate=8_000, encoding="alaw"))
    assert kinds(at_once) == ["committed", "created"]
    assert kinds(told(talk, flushed(flush_id))) == ["completed"]


def test_a_subprotocol_selects_the_beta_too_and_holds_the_key():
    offered = head(protocols=["realtime", "openai-insecure-api-key.sk-1", "openai-beta.realtime-v1"])

    (created,) = replies(OpenAIRealtime(offered).greet())

    assert created["type"] == "transcription_session.created"
    assert OpenAIRealtime.secret(offered) == "sk-1"
    assert OpenAIRealtime.secret(head(protocols=["realtime"])) is None
    assert OpenAIRealtime.subprotocols == ("realtime",)


def test_only_what_an_update_names_changes_and_null_clears():
    talk = dialect()
    update(
        talk, {"transcription": {"model": "a", "language": "en-GB"}, "noise_reduction": {"type": "far_field"}}
    )
    update(talk, {"turn_detection": None})

    after = update(talk, {"transcription": None, "turn_detection": {"silence_duration_ms": 700}})

    assert after["session"]["audio"]["input"] == {
        "format": {"type": "audio/pcm", "rate": 24_000},
        "transcription": {"model": None, "language": "en"},
        "noise_reduction": {"type": "far_field"},
        "turn_detection": {"type": "server_vad", "silence_duration_ms": 700},
    }
    assert append(talk, EARLY)[0] == Begin(
        SessionOptions(sample_rate=24_000, encoding="pcm_s16le", endpointing_ms=700, denoise=True)
    )


@pytest.mark.parametrize(("asked", "used"), [(1, 200), (200, 200), (3_000, 3_000), (60_000, 3_000)])
def test_a_pause_the_core_can_not_wait_for_becomes_the_nearest_and_is_noted(asked, used):
    talk = dialect()

    session = update(talk, {"turn_detection": {"type": "server_vad", "silence_duration_ms": asked}})[
        "session"
    ]

    assert session["audio"]["input"]["turn_detection"]["silence_duration_ms"] == used
    assert ("notes" in session) == (asked != used)
    assert append(talk, EARLY)[0].request.endpointing_ms == used


def test_semantic_turn_detection_becomes_a_pause():
    talk = dialect()

    session = update(talk, {"turn_detection": {"type": "semantic_vad", "eagerness": "low"}})["session"]

    assert session["audio"]["input"]["turn_detection"] == {"type": "server_vad", "silence_duration_ms": 2_000}
    assert "audio.input.turn_detection.type: 'server_vad' is used" in session["notes"]


@pytest.mark.parametrize(
    ("heard", "param", "says"),
    [
        ({"transcription": {"language": "de"}}, "session.audio.input.transcription.language", "only English"),
        ({"transcription": {"languages": ["de", "fr"]}}, "session.audio.input.transcription.languages", "only English"),
        ({"format": {"type": "audio/opus"}}, "session.audio.input.format.type", "audio/pcm"),
        ({"format": {"type": "audio/pcm", "rate": 7_000}}, "session.audio.input.format.rate", "8000"),
        ({"turn_detection": "always"}, "session.audio.input.turn_detection", "dictionary"),
    ],
)  # fmt: skip
def test_a_wrong_setting_is_named_and_nothing_changes(heard, param, says):
    talk = dialect(transcription={"model": "mine"})

    answer = update(talk, heard | {"noise_reduction": {"type": "near_field"}})

    assert answer["type"] == "error"
    assert answer["error"]["param"] == param
    assert says in answer["error"]["message"]
    kept = update(talk, {})["session"]["audio"]["input"]
    assert kept["transcription"] == {"model": "mine", "language": "en"}
    assert kept["noise_reduction"] is None


def test_in_the_beta_a_wrong_setting_has_the_betas_name():
    answer = hear(
        dialect(beta=True), "session.update", session={"input_audio_transcription": {"language": "de"}}
    )

    assert error_of(answer)["param"] == "session.input_audio_transcription.language"


def test_a_list_of_languages_with_english_is_fine():
    answer = update(dialect(), {"transcription": {"languages": ["de", "en-GB"]}})

    assert answer["session"]["audio"]["input"]["transcription"]["language"] == "en"


def test_a_conversation_is_not_to_be_had():
    answer = update(dialect(), {}, type="realtime")

    assert answer["error"]["param"] == "session.type"


@pytest.mark.parametrize(
    "heard",
    [
        {"format": {"type": "audio/pcmu"}},
        {"turn_detection": {"silence_duration_ms": 900}},
        {"noise_reduction": {}},
    ],
)
def test_after_the_first_audio_what_decides_how_it_is_heard_is_fixed(heard):
    talk = dialect()
    append(talk, EARLY)

    assert "fixed with the first audio" in update(talk, heard)["error"]["message"]
    assert update(talk, {"transcription": {"model": "other"}})["type"] == "session.updated"
    assert append(talk, EARLY) == (Audio(EARLY),)


@given(st.binary(min_size=1, max_size=2_000), st.lists(st.integers(0, 2_000), max_size=12))
def test_audio_is_handed_on_however_it_is_split(audio, cuts):
    talk = dialect()
    edges = [0, *sorted(min(cut, len(audio)) for cut in cuts), len(audio)]

    said = [each for a, b in pairwise(edges) for each in append(talk, audio[a:b])]
    said += append(talk, EARLY)
    audio += EARLY

    assert isinstance(said[0], Begin)
    assert all(isinstance(each, Audio) for each in said[1:])
    assert b"".join(each.data for each in said[1:]) == audio


@pytest.mark.parametrize("audio", ["no base64!", "AAA", 7, None, "é"])
def test_what_is_no_base64_is_named_with_the_clients_event(audio):
    error = error_of(hear(dialect(), "input_audio_buffer.append", audio=audio, event_id="mine-1"))

    assert error == {
        "message": "audio: base64 is wanted",
        "type": "invalid_request_error",
        "code": "invalid_value",
        "param": "audio",
        "event_id": "mine-1",
    }


@pytest.mark.parametrize(
    "message", ["{", "[]", "7", b"\0\1", "[" * 100_000, '{"type": null}', '{"type": ["a"]}']
)
def test_what_is_no_event_is_answered_and_the_session_goes_on(message):
    talk = dialect()

    assert error_of(talk.hear(message))["type"] == "invalid_request_error"
    assert isinstance(append(talk, EARLY)[0], Begin)


def test_an_unknown_event_is_named():
    error = error_of(hear(dialect(), "response.create", event_id="e"))

    assert "'response.create'" in error["message"]
    assert (error["param"], error["event_id"]) == ("type", "e")


@pytest.mark.parametrize("milliseconds", [0, 99])
def test_less_than_a_tenth_of_a_second_is_not_committed(milliseconds):
    talk = dialect(turn_detection=None)
    append(talk, bytes(48 * milliseconds))

    error = error_of(hear(talk, "input_audio_buffer.commit", event_id="e"))

    assert error["code"] == "input_audio_buffer_commit_empty"
    assert f"{milliseconds} ms" in error["message"]


def test_settings_that_come_a_little_late_still_count():
    talk = dialect()
    held = append(talk, bytes(SECOND // 10))
    update(talk, {"turn_detection": None, "noise_reduction": {"type": "far_field"}})
    append(talk, bytes(SECOND // 20))

    flush = hear(talk, "input_audio_buffer.commit")

    assert held == ()
    assert flush[0].request.denoise
    assert flush[1] == Audio(bytes(SECOND // 10 + SECOND // 20))


def test_turn_detection_can_be_turned_off_and_on_while_audio_flows():
    talk = dialect()
    append(talk, bytes(SECOND))
    update(talk, {"turn_detection": None})
    manual = told(talk, started(1, 0), final(1, "one"))
    update(talk, {"turn_detection": {"type": "server_vad"}})
    automatic = told(talk, started(2, 0), final(2, "two"))

    assert kinds(manual) == ["delta"]
    assert [message["transcript"] for message in completed(automatic)] == ["one two"]


def test_a_commit_is_one_item_whatever_the_core_made_of_it():
    talk = dialect(turn_detection=None)
    append(talk, bytes(3 * SECOND))
    flush_id, at_once = commit(talk)
    messages = told(
        talk,
        started(1, 0), partial(1, "Hello th", 5), final(1, "Hello there."), started(2, 900),
        final(2, ""), partial(3, "Bye", 0), final(3, "Bye."), flushed(flush_id),
    )  # fmt: skip

    assert kinds(at_once) == ["committed", "added", "done"]
    assert kinds(messages) == ["delta", "delta", "delta", "completed"]
    assert {message["item_id"] for message in messages} == {at_once[0]["item_id"]}
    assert deltas(messages) == messages[-1]["transcript"] == "Hello there. Bye."
    assert messages[-1]["usage"] == {"type": "duration", "seconds": 3.0}


def test_a_commit_of_silence_is_completed_too():
    talk = dialect(turn_detection=None)
    append(talk, bytes(SECOND))
    flush_id, _ = commit(talk)

    (message,) = told(talk, flushed(flush_id))

    assert message["transcript"] == ""


def test_commits_in_a_row_each_get_what_was_said_before_them():
    talk = dialect(turn_detection=None)
    append(talk, bytes(SECOND))
    early = told(talk, partial(1, "one", 3))
    first, first_item = commit(talk)
    append(talk, bytes(SECOND // 2))
    second, second_item = commit(talk)
    messages = early + told(
        talk, final(1, "one"), flushed(first), final(2, "two"), flushed("not ours"), flushed(second)
    )

    assert [(m["item_id"], m["transcript"], m["usage"]["seconds"]) for m in completed(messages)] == [
        (first_item[0]["item_id"], "one", 1.0),
        (second_item[0]["item_id"], "two", 0.5),
    ]
    assert second_item[0]["previous_item_id"] == first_item[0]["item_id"]
    assert early[0]["item_id"] == first_item[0]["item_id"]


@pytest.mark.parametrize("turns", [None, {"type": "server_vad"}])
def test_what_was_cleared_yields_no_item(turns):
    talk = dialect(turn_detection=turns)
    append(talk, bytes(SECOND))
    before = told(talk, started(1, 0), partial(1, "forget this", 6))
    said = hear(talk, "input_audio_buffer.clear")
    (flush_id,) = [each.id for each in said if isinstance(each, Flush)]
    dropped = told(talk, partial(1, "forget this", 11), final(1, "forget this"), flushed(flush_id))
    append(talk, bytes(SECOND))
    after = told(talk, started(2, 1_200), partial(2, "but not this", 3))
    commit_id, at_once = commit(talk)
    after += told(talk, final(2, "but not this"), flushed(commit_id))

    assert kinds(replies(said)) == ["cleared"]
    assert dropped == []
    assert [m["transcript"] for m in completed(after)] == ["but not this"]
    assert completed(after)[0]["item_id"] == at_once[0]["item_id"] != before[0]["item_id"]
    assert at_once[0]["previous_item_id"] is None


def test_clearing_nothing_is_fine():
    assert kinds(replies(hear(dialect(), "input_audio_buffer.clear"))) == ["cleared"]


def test_a_commit_within_an_utterance_of_the_vad_takes_its_item():
    talk = dialect()
    append(talk, bytes(SECOND))
    (begun,) = told(talk, started(1, 100))
    flush_id, at_once = commit(talk)
    messages = told(talk, final(1, "cut short", 100, 900), flushed(flush_id))

    assert at_once[0]["item_id"] == begun["item_id"]
    assert kinds(messages) == ["delta", "completed"]
    assert kinds(told(talk, started(2, 1_500), final(2, "next", 1_500, 2_000))) == [
        "speech_started", "speech_stopped", "committed", "added", "done", "delta", "completed",
    ]  # fmt: skip


def test_what_the_vad_has_committed_can_not_be_committed_again():
    talk = dialect()
    append(talk, bytes(SECOND))
    told(talk, started(1, 0), final(1, "all of it", 0, 950))

    assert error_of(hear(talk, "input_audio_buffer.commit"))["code"] == "input_audio_buffer_commit_empty"


def test_logprobs_are_of_words_and_only_on_request():
    talk = dialect()
    update(talk, {}, include=["item.input_audio_transcription.logprobs"])
    append(talk, EARLY)
    (full,) = completed(told(talk, started(1, 0), final(1, "Hi you", confidences=(1.0, 0.5))))
    (unknown,) = completed(told(talk, started(2, 0), final(2, "Hi you", confidences=(1.0,))))
    update(talk, {}, include=None)
    (none,) = completed(told(talk, started(3, 0), final(3, "Hi you", confidences=(1.0, 0.5))))

    assert full["logprobs"] == [
        {"token": "Hi", "bytes": [72, 105], "logprob": 0.0},
        {"token": " you", "bytes": [32, 121, 111, 117], "logprob": -0.6931},
    ]
    assert unknown["logprobs"] is None
    assert "logprobs" not in none


@st.composite
def utterances(draw):
    """Events of some utterances, with partials whose stable part only grows; and their text."""
    events, texts = [], []
    for n in range(1, draw(st.integers(1, 4)) + 1):
        text = " ".join(draw(st.lists(st.text("ab é𝄞.", min_size=1, max_size=5), max_size=4))).strip()
        stables = sorted(draw(st.lists(st.integers(0, len(text)), max_size=4)))
        events += [started(n, n * 1_000)]
        events += [partial(n, text[:stable] + draw(st.text("xy", max_size=3)), stable) for stable in stables]
        events += [final(n, text, n * 1_000, n * 1_000 + 900)]
        texts.append(text)
    return events, texts


@given(utterances())
def test_deltas_are_the_transcript_for_each_utterance(spoken):
    events, texts = spoken
    talk = dialect()
    append(talk, EARLY)

    messages = told(talk, *events)

    done = completed(messages)
    assert [message["transcript"] for message in done] == texts
    for message in done:
        assert deltas(m for m in messages if m.get("item_id") == message["item_id"]) == message["transcript"]
    committed = [m for m in messages if m["type"] == "input_audio_buffer.committed"]
    assert [m["previous_item_id"] for m in committed] == [None, *(m["item_id"] for m in committed[:-1])]


@given(utterances(), st.integers(0, 30))
def test_deltas_are_the_transcript_for_a_commit_at_any_time(spoken, at):
    events, texts = spoken
    talk = dialect(turn_detection=None)
    append(talk, bytes(SECOND))

    messages = told(talk, *events[:at])
    flush_id, _ = commit(talk)
    messages += told(talk, *events[at:], flushed(flush_id))

    (done,) = completed(messages)
    assert deltas(messages) == done["transcript"] == " ".join(text for text in texts if text)


def test_what_ended_a_session_is_told_before_it_is_closed():
    talk = dialect()
    (failed,) = told(talk, ErrorEvent(session="s", code="stage_failed", message="open a new session"))
    (limit,) = [json.loads(message) for message in talk.refuse(QuotaExceeded("too much"))]

    assert failed["error"]["type"] == "server_error"
    assert limit["error"]["code"] == "rate_limit_exceeded"
    assert [talk.close(error).code for error in (None, BadInput("x"), QuotaExceeded("x"))] == [
        1000,
        1008,
        1013,
    ]


def test_refusals_are_openais_errors():
    answer = OpenAIRealtime.response(Unauthorized("this key is not valid"))
    away = OpenAIRealtime.response(RedisUnavailable("at 10.0.0.7"))

    assert (answer.status_code, away.status_code) == (401, 503)
    assert json.loads(answer.body)["error"] == {
        "message": "this key is not valid",
        "type": "invalid_request_error",
        "param": None,
        "code": "invalid_api_key",
    }
    assert answer.headers["content-length"] == str(len(answer.body))
    assert "www-authenticate" in answer.headers
    assert b"10.0.0.7" not in away.body
