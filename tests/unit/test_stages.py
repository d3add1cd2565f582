"""Chunking must not matter, states travel, and the literal cases that keep both honest."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.events import EVENT_ADAPTER
from shared.protocol import SessionOptions
from tests.fakes import LoudnessDetector, NumberVocabulary, PitchEngine
from tests.pipeline import Pipeline, audio_chunks, finals, lasting
from workers.stage import Haste
from workers.stages.acoustic import SILENCE, Acoustic
from workers.stages.codec import Position
from workers.stages.decoder import Decoder
from workers.stages.frontend import Frontend
from workers.stages.transcript import sketch_limit
from workers.stages.wordtimes import loudness
from workers.wire import AudioChunk, Closed, Encoded, Opened, Paused, Speech, Through

RATE = 16_000
ENGINE = PitchEngine()


def stages():
    return [Frontend(LoudnessDetector()), Acoustic(ENGINE), Decoder(ENGINE, NumberVocabulary())]


def speech(seconds: float, seed: int = 1) -> np.ndarray:
    """Loud noise whose level changes every 160 ms."""
    rng = np.random.default_rng(seed)
    levels = np.repeat(rng.uniform(0.2, 0.9, int(seconds * RATE) // 2560 + 1), 2560)[: int(seconds * RATE)]
    return (rng.choice([-1.0, 1.0], len(levels)) * levels * 32767).astype(np.int16)


def silence(seconds: float) -> np.ndarray:
    return np.zeros(int(seconds * RATE), np.int16)


def talk() -> np.ndarray:
    """Four utterances: after 1 s; after a long pause; longer than 15 s; cut off by the end of the audio."""
    parts = [silence(1), speech(2.5, 1), silence(4), speech(17, 2), silence(0.7), speech(1.1, 3)]
    return np.concatenate(parts)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(1, 9), max_size=60), st.booleans())
def test_what_is_finally_said_does_not_depend_on_how_chunks_are_grouped(groups, reload):
    one_by_one = Pipeline(stages()).run(audio_chunks(talk()), [1] * 200)

    grouped = Pipeline(stages()).run(audio_chunks(talk()), groups, reload=reload)

    assert lasting(grouped) == lasting(one_by_one)


class RecordingEngine(PitchEngine):
    def __init__(self):
        self.calls: list[tuple[np.ndarray, int]] = []

    def encode(self, samples: np.ndarray, *, cuts: Sequence[int] = ()) -> np.ndarray:
        self.calls.append((samples, cuts[-1] if cuts else 0))
        return super().encode(samples, cuts=cuts)


def test_a_finals_context_was_encoded_when_its_utterance_opened():
    engine = RecordingEngine()
    conversation = np.concatenate([part for i in range(4) for part in (speech(2, i), silence(0.9))])

    Pipeline([Frontend(LoudnessDetector()), Acoustic(engine), Decoder(engine, NumberVocabulary())]).run(
        audio_chunks(conversation), [1] * 99
    )

    whole = [samples.tobytes() for samples, cut in engine.calls if cut == len(samples)]
    finals_context = [s[:cut] for s, cut in engine.calls if cut and not s[-SILENCE:].any()]
    assert len(finals_context) == 3
    assert all(context.tobytes() in whole for context in finals_context)


@settings(max_examples=8, deadline=None)
@given(st.lists(st.integers(1, 9), max_size=60), st.booleans())
def test_noise_reduction_does_not_depend_on_grouping_either(groups, reload):
    chunks, options = (
        audio_chunks(np.concatenate([speech(2), silence(1), speech(1)])),
        SessionOptions(denoise=True),
    )
    one_by_one = Pipeline(stages(), options).run(chunks, [1] * 99)

    grouped = Pipeline(stages(), options).run(chunks, groups, reload=reload)

    assert lasting(grouped) == lasting(one_by_one)
    assert one_by_one[-1]["audio_ms"] == 4000


@settings(max_examples=15, deadline=None)
@given(st.integers(80, 1000))
def test_what_is_finally_said_does_not_depend_on_the_length_of_chunks(chunk_ms):
    expected = Pipeline(stages()).run(audio_chunks(talk()), [1] * 200)

    events = Pipeline(stages()).run(audio_chunks(talk(), RATE * chunk_ms // 1000), [1] * 400)

    assert finals(events) == finals(expected)


@settings(max_examples=10, deadline=None)
@given(st.lists(st.sampled_from([Haste.NONE, Haste.BEHIND]), min_size=80, max_size=80))
def test_being_behind_changes_nothing_that_lasts(hastes):
    expected = Pipeline(stages()).run(audio_chunks(talk()), [1] * 200)
    pipeline, chunks, events = Pipeline(stages()), audio_chunks(talk()), []

    for chunk, haste in zip(chunks, [*hastes, *[Haste.NONE] * len(chunks)], strict=False):
        events += pipeline.feed([chunk], haste=haste)

    assert lasting(events) == lasting(expected)


def test_who_is_behind_shows_only_anchors_and_who_is_far_behind_only_finals():
    def run(haste):
        return Pipeline(stages()).run(audio_chunks(talk()), [1] * 200, haste=haste)

    def shown(events):
        return [event["end_ms"] for event in events if event["type"] == "partial"]

    assert len(shown(run(Haste.NONE))) > 2 * len(shown(run(Haste.BEHIND)))
    assert all(end % 1280 == 0 for end in shown(run(Haste.BEHIND)))
    assert shown(run(Haste.FAR_BEHIND)) == []
    assert [f["text"] for f in finals(run(Haste.FAR_BEHIND))] == [f["text"] for f in finals(run(Haste.NONE))]


def test_an_utterance_reaches_back_300_ms_and_ends_after_the_endpointing_time():
    frontend = Frontend(LoudnessDetector())
    audio = np.concatenate([silence(1.024), speech(1.024), silence(1.024)])
    pipeline = Pipeline([frontend])

    items = pipeline.feed(audio_chunks(audio)[:-1])

    opened = 16_384 - 4_800
    ended = 32_768 + 3_200
    assert [item for item in items if not isinstance(item, Speech)] == [
        Opened(1, opened),
        Paused(ended, 16_384),
        Closed(1, ended, 16_384),
        Through(len(audio)),
    ]
    sent = [item for item in items if isinstance(item, Speech)]
    assert sent[0].start == opened
    assert b"".join(item.pcm for item in sent) == audio[opened : 32_768 + 16 * 512].tobytes()


def test_silence_costs_nothing_beyond_the_frontend():
    assert Pipeline([Frontend(LoudnessDetector())]).feed(audio_chunks(silence(30))[:-1]) == []


def test_speech_over_15_s_is_cut_at_its_quietest_point_of_the_last_second():
    audio = speech(16)
    audio[int(14.6 * RATE) : int(14.7 * RATE)] //= 8
    items = Pipeline([Frontend(LoudnessDetector())]).feed(audio_chunks(audio)[:-1])

    closed = next(item for item in items if isinstance(item, Closed))
    reopened = [item for item in items if isinstance(item, Opened)][1]

    assert reopened.start == closed.end
    assert 14.6 * RATE - 512 <= closed.end <= 14.7 * RATE + 512


def test_long_speech_ends_at_a_short_pause():
    audio = np.concatenate([speech(11), silence(0.3), speech(1)])

    items = Pipeline([Frontend(LoudnessDetector())]).feed(audio_chunks(audio)[:-1])

    assert len([item for item in items if isinstance(item, Opened)]) == 2


def test_a_flush_closes_the_utterance_with_its_last_sample_and_answers_with_its_id():
    audio = speech(1.01)
    chunks = [*audio_chunks(audio)[:-1], AudioChunk("flush", b"f1")]

    events = Pipeline(stages()).run(chunks, [1] * 20)

    final = finals(events)[0]
    assert final["end_ms"] == 1010
    assert [event["type"] for event in events[-3:]] == ["final", "speech_end", "flushed"]
    assert events[-1]["flush_id"] == "f1"


@pytest.mark.parametrize("groups", [[1] * 99, [2] * 50, [99]], ids=["one by one", "in twos", "at once"])
def test_how_far_a_flush_has_come_does_not_depend_on_the_grouping(groups):
    chunks = [*audio_chunks(speech(1.2, 3))[:-1], *[AudioChunk("flush", b"")] * 3]

    events = Pipeline(stages()).run(chunks, groups)

    assert [event["through_ms"] for event in events if event["type"] == "flushed"] == [1200] * 3


def test_speech_goes_on_after_a_flush_without_saying_anything_twice():
    audio = speech(3.001)
    whole = audio_chunks(audio)[:-1]
    chunks = [*whole[:4], AudioChunk("flush", b""), *whole[4:], AudioChunk("end", b"")]

    said = finals(Pipeline(stages()).run(chunks, [1] * 20))

    assert said[0]["end_ms"] == said[1]["start_ms"] == 4 * 320
    assert said[1]["end_ms"] == 3001


def test_a_single_voiced_frame_at_the_very_end_is_still_looked_at():
    audio = np.concatenate([silence(0.96), speech(0.04)])

    items = Pipeline([Frontend(LoudnessDetector())]).feed(audio_chunks(audio))

    assert Closed(1, 16_000, 512) in items


def test_dropped_audio_is_announced_and_times_after_it_stay_true():
    before, after = audio_chunks(speech(2))[:-1], audio_chunks(np.concatenate([silence(1), speech(1)]))
    chunks = [*before, AudioChunk("gap", b"32000:64000:client_too_fast:0"), *after]

    events = Pipeline(stages()).run(chunks, [1] * 30)

    gap = next(event for event in events if event["type"] == "gap")
    assert (gap["start_ms"], gap["end_ms"]) == (2000, 4000)
    assert finals(events)[0]["end_ms"] == 2000
    assert finals(events)[1]["start_ms"] == 4692  # the frame in which speech begins, less 300 ms
    assert events[-1]["audio_ms"] == 6000


def test_stable_text_is_never_taken_back_within_an_utterance():
    events = Pipeline(stages()).run(audio_chunks(talk()), [1] * 200)

    promised: dict[int, str] = {}
    for event in events:
        if event["type"] in ("partial", "final"):
            assert event["text"].startswith(promised.get(event["utterance"], ""))
            promised[event["utterance"]] = event["text"][: event["stable"]]
    assert any(promised.values())


def test_without_partials_only_finals_are_sent():
    options = SessionOptions(partials=False)

    events = Pipeline(stages(), options).run(audio_chunks(talk()), [1] * 200)

    assert {event["type"] for event in events} == {"speech_start", "final", "speech_end", "end"}


class AskedEngine(PitchEngine):
    """Remembers whether it was asked for a sketch, and how long a hypothesis might be."""

    def __init__(self):
        self.asked: list[tuple[bool, int]] = []

    def decode(self, hidden, *, limit, sketch=False, **known):
        self.asked.append((sketch, limit))
        return super().decode(hidden, limit=limit, **known)


def encoded(kind: str, seconds: int) -> Encoded:
    audio = speech(seconds).astype(np.float32) / 32768
    return Encoded(1, kind, 0, 0, 0, len(audio), len(audio), loudness(audio), ENGINE.encode(audio))


@pytest.mark.parametrize(("kind", "sketched"), [("partial", True), ("anchor", False), ("final", False)])
def test_only_what_is_shown_and_forgotten_is_sketched(kind, sketched):
    engine = AskedEngine()
    decoder = Decoder(engine, NumberVocabulary())

    decoder.step(decoder.initial(Position()), [(encoded(kind, 2),)], [], SessionOptions())

    assert [sketch for sketch, _ in engine.asked] == [sketched]


def test_a_sketch_has_room_for_all_audio_since_the_last_one_that_was_shown():
    engine = AskedEngine()
    decoder = Decoder(engine, NumberVocabulary())
    shown = decoder.step(decoder.initial(Position()), [(encoded("partial", 1),)], [], SessionOptions()).state
    left_out = decoder.step(shown, [(Through(3 * RATE),)], [], SessionOptions()).state

    decoder.step(left_out, [(encoded("partial", 4),)], [], SessionOptions())

    assert engine.asked[-1] == (True, sketch_limit(len(shown.latest), 3 * RATE, 4 * RATE))


QUIET = SessionOptions(silence_ms=1000)


def silences(events) -> list[tuple[int, int]]:
    return [(event["start_ms"], event["end_ms"]) for event in events if event["type"] == "silence"]


def test_silence_is_told_once_for_each_gap_and_at_the_start_of_the_session():
    audio = np.concatenate([silence(3.2), speech(1.6), silence(0.96), speech(1.6), silence(4)])

    events = Pipeline(stages(), QUIET).run(audio_chunks(audio), [1] * 99)

    # In frames of 32 ms: 1,000 ms are over after 1,024. The gap of 960 ms is none.
    assert silences(events) == [(0, 1024), (3200 + 1600 + 960 + 1600, 7360 + 1024)]
    kinds = [event["type"] for event in lasting(events)]
    assert kinds == ["silence", *["speech_start", "final", "speech_end"] * 2, "silence", "end"]


@settings(max_examples=15, deadline=None)
@given(st.lists(st.integers(1, 9), max_size=60), st.integers(80, 1000), st.booleans())
def test_when_silence_is_told_does_not_depend_on_grouping_or_chunks(groups, chunk_ms, reload):
    expected = lasting(Pipeline(stages(), QUIET).run(audio_chunks(talk()), [1] * 200))

    events = Pipeline(stages(), QUIET).run(audio_chunks(talk(), 16 * chunk_ms), groups, reload=reload)

    assert lasting(events) == expected
    assert silences(expected) == [(0, 1024), (3520, 4544)]


def test_silence_shorter_than_the_endpointing_time_is_told_within_the_utterance():
    options = SessionOptions(silence_ms=320, endpointing_ms=960)
    audio = np.concatenate([speech(1.6), silence(0.64), speech(1.6), silence(2)])

    events = lasting(Pipeline(stages(), options).run(audio_chunks(audio), [1] * 99))

    assert [event["type"] for event in events] == [
        "speech_start",
        "silence",
        "silence",
        "final",
        "speech_end",
        "end",
    ]
    assert silences(events) == [(1600, 1920), (3840, 4160)]


def test_a_flush_does_not_tell_silence_and_does_not_restart_its_count():
    first, second = audio_chunks(np.concatenate([speech(0.96), silence(0.64)])), audio_chunks(silence(2))
    chunks = [*first[:-1], AudioChunk("flush", b""), *second]

    events = lasting(Pipeline(stages(), QUIET).run(chunks, [1] * 99))

    assert [event["type"] for event in events][-3:] == ["flushed", "silence", "end"]
    assert silences(events) == [(960, 1984)]


def test_what_may_have_been_said_in_dropped_audio_breaks_a_silence():
    chunks = [
        *audio_chunks(silence(2))[:-1],
        AudioChunk("gap", b"32000:64000:client_too_fast:0"),
        *audio_chunks(silence(2)),
    ]

    events = Pipeline(stages(), QUIET).run(chunks, [1] * 30)

    assert silences(events) == [(0, 1024), (4000, 5024)]


def test_a_click_ends_no_silence():
    audio = silence(4)
    audio[20_480:20_992] = speech(0.032)

    assert silences(Pipeline(stages(), QUIET).run(audio_chunks(audio), [1] * 30)) == [(0, 1024)]


def test_every_event_of_the_stages_is_one_of_the_public_schema():
    events = Pipeline(stages(), QUIET).run(
        [*audio_chunks(talk())[:-1], AudioChunk("flush", b"x"), AudioChunk("end", b"")], [1] * 200
    )

    kinds = {EVENT_ADAPTER.validate_python({"session": "s", **event}).type for event in events}

    assert kinds == {"speech_start", "partial", "final", "speech_end", "silence", "flushed", "end"}


def test_a_state_of_another_schema_resumes_at_its_place_without_the_open_utterance():
    pipeline = Pipeline(stages())
    chunks = audio_chunks(np.concatenate([speech(2), silence(1), speech(2)]))
    pipeline.run(chunks[:4], [1] * 4)
    for stage in pipeline.stages:
        stage.schema = 2

    pipeline.states = [
        stage.initial(type(stage).load(stage, blob))
        for stage, blob in zip(
            pipeline.stages,
            [_dump_as(1, s, st) for s, st in zip(pipeline.stages, pipeline.states, strict=True)],
            strict=True,
        )
    ]
    events = pipeline.run(chunks[4:], [1] * 40)

    assert finals(events)[-1]["end_ms"] == 5000
    assert events[-1]["type"] == "end"


def _dump_as(schema, stage, state):
    current, stage.schema = stage.schema, schema
    blob = stage.dump(state)
    stage.schema = current
    return blob
