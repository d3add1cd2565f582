"""A transcript in each format of OpenAI's transcription endpoint, and what a request may ask for."""

import math

import pytest
from openai.types.audio import Transcription, TranscriptionVerbose

from gateway.dialects.openai_answers import BadField, Wanted, rendered
from shared.events import Final, Word


def final(text: str, start_ms: int, end_ms: int) -> Final:
    step = (end_ms - start_ms) // max(1, len(text.split()))
    words = [
        Word(text=word, start_ms=start_ms + at * step, end_ms=start_ms + (at + 1) * step, confidence=0.5)
        for at, word in enumerate(text.split())
    ]
    return Final(
        session="s", utterance=1, text=text, stable=len(text), start_ms=start_ms, end_ms=end_ms,
        words=words, confidence=0.5 if words else None,
    )  # fmt: skip


SPOKEN = [final("Hello there.", 500, 1_500), final("", 2_000, 2_200), final("Bye.", 61_000, 61_400)]


def answer(**fields: str):
    wanted = Wanted.of({name: value.split() for name, value in fields.items()})
    return rendered(wanted, SPOKEN, 62_000)


def test_json_is_the_default():
    said = answer(model="whisper-1", temperature="0", unheard_of="x")

    assert said == {"text": "Hello there. Bye.", "usage": {"type": "duration", "seconds": 62.0}}
    Transcription.model_validate(said)


def test_text_and_subtitles_are_plain():
    assert answer(response_format="text") == "Hello there. Bye.\n"
    assert answer(response_format="srt") == (
        "1\n00:00:00,500 --> 00:00:01,500\nHello there.\n\n2\n00:01:01,000 --> 00:01:01,400\nBye.\n"
    )
    assert answer(response_format="vtt") == (
        "WEBVTT\n\n00:00:00.500 --> 00:00:01.500\nHello there.\n\n00:01:01.000 --> 00:01:01.400\nBye.\n"
    )


def test_verbose_json_has_segments_unless_only_words_are_wanted():
    segments = answer(response_format="verbose_json")
    words = answer(response_format="verbose_json", **{"timestamp_granularities[]": "word"})
    both = answer(response_format="verbose_json", **{"timestamp_granularities[]": "word segment"})

    for said in (segments, words, both):
        TranscriptionVerbose.model_validate(said)
    assert [(each["id"], each["start"], each["end"], each["text"]) for each in segments["segments"]] == [
        (0, 0.5, 1.5, "Hello there."),
        (1, 61.0, 61.4, "Bye."),
    ]
    assert segments["segments"][0]["avg_logprob"] == round(math.log(0.5), 4)
    assert "words" not in segments
    assert words["words"][:2] == [
        {"word": "Hello", "start": 0.5, "end": 1.0},
        {"word": "there.", "start": 1.0, "end": 1.5},
    ]
    assert "segments" not in words
    assert both == segments | words


def test_logprobs_are_of_words():
    said = answer(**{"include[]": "logprobs"})

    Transcription.model_validate(said)
    assert "".join(each["token"] for each in said["logprobs"]) == said["text"]


@pytest.mark.parametrize(
    ("fields", "param", "says"),
    [
        ({"response_format": "docx"}, "response_format", "json, text, srt, vtt, verbose_json"),
        ({"response_format": "diarized_json"}, "response_format", "speakers are not told apart"),
        ({"response_format": "srt", "stream": "true"}, "stream", "not streamed"),
        ({"timestamp_granularities[]": "syllable"}, "timestamp_granularities", "segment and word"),
        ({"language": "de"}, "language", "only English"),
        ({"languages[]": "de fr"}, "languages", "de, fr"),
    ],
)
def test_what_can_not_be_had_is_named(fields, param, says):
    with pytest.raises(BadField, match=says) as caught:
        answer(**fields)

    assert caught.value.param == param


def test_nothing_said_is_an_answer_too():
    assert rendered(Wanted.of({}), [], 1_000) == {"text": "", "usage": {"type": "duration", "seconds": 1.0}}
    assert rendered(Wanted.of({"response_format": ["vtt"]}), [], 1_000) == "WEBVTT\n"
