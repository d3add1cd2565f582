"""One suite for every engine: the real one and the one the property tests run on."""

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import soundfile

from tests.fakes import LoudnessDetector, NumberVocabulary, PitchEngine
from tests.pipeline import Pipeline, audio_chunks, finals, lasting
from workers.engines.moonshine.encoder import REMEMBERED_BLOCKS, REMEMBERED_FRAMES
from workers.engines.moonshine.engine import MoonshineEngine, assets
from workers.engines.silero import SileroDetector
from workers.stages.acoustic import Acoustic
from workers.stages.decoder import Decoder
from workers.stages.frontend import Frontend, VadState

RECORDING = Path(__file__).parents[2] / "ops/assets/demo.flac"


@pytest.fixture(scope="module")
def moonshine():
    return MoonshineEngine.load()


@pytest.fixture(params=["pitch", pytest.param("moonshine", marks=pytest.mark.slow)])
def engine(request):
    if request.param == "pitch":
        return PitchEngine(), NumberVocabulary()
    real = request.getfixturevalue("moonshine")
    return real, real.vocabulary


@pytest.fixture(params=["loudness", "silero"])
def detector(request):
    return LoudnessDetector() if request.param == "loudness" else SileroDetector.load()


@pytest.fixture(scope="module")
def recording() -> np.ndarray:
    samples, rate = soundfile.read(RECORDING, dtype="int16")
    assert rate == 16_000
    return samples


def as_float(samples: np.ndarray) -> np.ndarray:
    return samples.astype(np.float32) / 32768


def test_encoding_is_half_precision_and_the_same_every_time(engine, recording):
    encoder, _ = engine

    hidden = encoder.encode(as_float(recording[:32_000]))

    assert hidden.dtype == np.float16
    assert np.array_equal(hidden, encoder.encode(as_float(recording[:32_000])))


@pytest.mark.slow
@pytest.mark.parametrize("cuts", [(), (61_440,), (20_480, 40_960, 61_440)])
def test_what_an_engine_remembers_changes_nothing(moonshine, recording, cuts):
    samples = as_float(recording[:70_000])
    for length in (20_480, 30_000, 40_960, 61_440):  # as an utterance grows
        moonshine.encode(samples[:length], cuts=range(20_480, length + 1, 20_480))

    remembering = moonshine.encode(samples, cuts=cuts)

    assert np.array_equal(remembering, MoonshineEngine.load().encode(samples, cuts=cuts))


@pytest.mark.slow
def test_an_engine_forgets_the_oldest_and_stays_small(moonshine, recording):
    for start in range(0, 100_000, 500):
        samples = as_float(recording[start : start + 40_000])
        moonshine.encode(samples, cuts=[40_000])
    encoder = moonshine._encoder

    assert sum(len(run.hidden) for run in encoder._runs.values()) <= REMEMBERED_FRAMES
    assert len(encoder._blocks) <= REMEMBERED_BLOCKS


@pytest.mark.slow
def test_our_layers_say_what_onnxruntime_says_with_the_same_weights(moonshine, recording):
    samples = as_float(recording[:90_000])
    ours = moonshine.decode(moonshine.encode(samples), limit=60).tokens

    assert len(ours) > 15
    assert ours == reference_tokens(samples, limit=60)


def reference_tokens(samples: np.ndarray, limit: int) -> tuple[int, ...]:
    """Greedy search with the model files as they are, every token from the beginning each time."""
    encoder, decoder = (
        onnxruntime.InferenceSession(assets() / name)
        for name in ("encoder_model.ort", "decoder_model_merged.ort")
    )
    mask = np.ones((1, len(samples)), np.int64)
    hidden = encoder.run(None, {"input_values": samples[None], "attention_mask": mask})[0]
    empty = {
        i.name: np.zeros((1, 8, hidden.shape[1] if ".encoder." in i.name else 0, 36), np.float32)
        for i in decoder.get_inputs()
        if i.name.startswith("past")
    }
    fixed = {"encoder_hidden_states": hidden, "encoder_attention_mask": mask}
    tokens = [1]
    while len(tokens) <= limit:
        ids = {"input_ids": np.array([tokens], np.int64), "use_cache_branch": np.array([False])}
        best = int(decoder.run(["logits"], {**fixed, **empty, **ids})[0][0, -1].argmax())
        if best == 2:
            break
        tokens.append(best)
    return tuple(tokens[1:])


@pytest.mark.slow
def test_audio_may_be_minutes_long(moonshine, recording):
    samples = np.tile(as_float(recording), 5)

    assert len(moonshine.decode(moonshine.encode(samples), limit=700).tokens) > 60


@pytest.mark.parametrize("samples", [1, 399, 8_000])
def test_audio_of_any_length_can_be_encoded_and_decoded(engine, samples):
    encoder, _ = engine

    encoder.decode(encoder.encode(np.full(samples, 0.01, np.float32)), limit=5)


def test_a_hypothesis_begins_with_what_was_forced_and_has_a_score_for_every_token(engine, recording):
    encoder, _ = engine
    hidden = encoder.encode(as_float(recording[:48_000]))

    found = encoder.decode(hidden, forced=[450, 300], limit=10, scored=True)

    assert found.tokens[:2] == (450, 300)
    assert len(found.logprobs) == len(found.tokens) <= 10
    assert all(score <= 0 for score in found.logprobs)


def test_context_is_neither_returned_nor_scored(engine, recording):
    encoder, _ = engine
    hidden = encoder.encode(as_float(recording[:48_000]))

    found = encoder.decode(hidden, context=[450, 300], forced=[310], limit=10, scored=True)

    assert found.tokens[0] == 310
    assert len(found.logprobs) == len(found.tokens) <= 10


def test_a_wrong_guess_is_not_believed(engine, recording):
    encoder, _ = engine
    hidden = encoder.encode(as_float(recording[:48_000]))
    greedy = encoder.decode(hidden, limit=30)

    misled = encoder.decode(hidden, guess=[9999, 1234], limit=30)

    assert misled.tokens[0] == greedy.tokens[0]


@pytest.mark.slow
def test_a_sketch_stops_at_a_sentence_end_that_the_guess_does_not_have(moonshine, recording):
    hidden, text = moonshine.encode(as_float(recording)), moonshine.vocabulary.text
    whole = moonshine.decode(hidden, limit=60).tokens
    assert text(whole).count(".") > 1

    sketch = moonshine.decode(hidden, limit=60, sketch=True).tokens
    further = moonshine.decode(hidden, guess=sketch, limit=60, sketch=True).tokens

    assert text(sketch) == text(whole)[: text(whole).index(".") + 1]
    assert len(sketch) < len(further) <= len(whole)


def test_text_of_a_prefix_is_a_prefix_of_the_text(engine, recording):
    encoder, vocabulary = engine
    tokens = encoder.decode(encoder.encode(as_float(recording[:64_000])), limit=40).tokens

    assert tokens
    for cut in (i for i, token in enumerate(tokens) if vocabulary.starts_word(token)):
        assert vocabulary.text(tokens).startswith(vocabulary.text(tokens[:cut]))


def test_a_detector_keeps_nothing_between_sessions(detector, recording):
    frames = as_float(recording[16_000 : 16_000 + 20 * 512]).reshape(-1, 512)

    def probabilities(*, other_session_between):
        state, other, found = VadState(), VadState(), []
        for frame in frames:
            probability, state = detector.probability(state, frame)
            found.append(probability)
            if other_session_between:
                _, other = detector.probability(other, frame[::-1].copy())
        return found

    assert probabilities(other_session_between=False) == probabilities(other_session_between=True)


@pytest.mark.slow
def test_the_recordings_last_text_is_the_same_however_its_chunks_are_grouped(moonshine, recording):
    chunks = audio_chunks(recording)

    def run(groups, reload):
        stages = [
            Frontend(SileroDetector.load()),
            Acoustic(moonshine),
            Decoder(moonshine, moonshine.vocabulary),
        ]
        return lasting(Pipeline(stages).run(chunks, groups, reload=reload))

    one_by_one = run([1] * len(chunks), reload=False)

    assert "best of times" in finals(one_by_one)[0]["text"]
    assert run([3, 1, 7, 2, 11, 1, 5], reload=True) == one_by_one
