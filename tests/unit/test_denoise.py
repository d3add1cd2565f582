"""Noise reduction keeps every sample's place, does not depend on chunking, and lowers noise, not speech."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workers.stages.denoise import HOP, DenoiseState, denoise, flush, initial

RATE = 16_000
# The first burst falls into the 100 ms that are taken for noise; the later ones keep their -13.4 dB.
GOLDEN = [-18.5, -38.8, -14.2, -38.8, -13.6, -38.7, -13.5, -38.7]


def noise(seconds: float, level: float = 0.02) -> np.ndarray:
    return (np.random.default_rng(3).standard_normal(int(seconds * RATE)) * level).astype(np.float32)


def bursts(seconds: float) -> np.ndarray:
    """A 500 Hz tone, a quarter of a second on, a quarter off: loud and not steady, as speech is."""
    t = np.arange(int(seconds * RATE)) / RATE
    return (0.3 * np.sin(2 * np.pi * 500 * t) * ((t * 2) % 1 < 0.5)).astype(np.float32)


def level_db(samples: np.ndarray) -> float:
    return float(20 * np.log10(samples.std() + 1e-12))


def run(samples: np.ndarray, sizes: list[int]) -> np.ndarray:
    state, out, at, turn = initial(), [], 0, 0
    while at < len(samples):
        size = sizes[turn % len(sizes)]
        state, finished = denoise(state, samples[at : at + size])
        out.append(finished)
        at, turn = at + size, turn + 1
    return np.concatenate([*out, flush(state)[1]])


@settings(deadline=None)
@given(
    length=st.integers(0, 6_000),
    sizes=st.lists(st.integers(0, 2_000), min_size=1, max_size=6).filter(any),
)
def test_chunking_does_not_matter_and_no_sample_is_lost(length, sizes):
    samples = (noise(1) + bursts(1))[:length]
    out = run(samples, sizes)
    assert len(out) == length
    assert out.tolist() == run(samples, [max(length, 1)]).tolist()


def test_output_lags_by_less_than_two_hops():
    state, given_out = initial(), 0
    for taken in range(100, 5_000, 100):
        state, finished = denoise(state, np.zeros(100, np.float32))
        given_out += len(finished)
        assert HOP <= taken - given_out < 2 * HOP or given_out == 0


def test_audio_after_a_flush_is_complete_and_knows_the_noise():
    state, first = denoise(initial(), noise(3))
    state, rest = flush(state)
    assert len(first) + len(rest) == 3 * RATE
    state, second = denoise(state, noise(1))
    assert len(second) + len(flush(state)[1]) == RATE
    assert level_db(second[1_000:4_000]) < level_db(noise(1)) - 3


def test_steady_noise_is_lowered_and_bursts_keep_their_level():
    both = noise(2) + np.concatenate([np.zeros(RATE, np.float32), bursts(1)])
    out = run(both, [5_120])
    assert level_db(out[RATE // 2 : RATE]) < level_db(both[RATE // 2 : RATE]) - 3
    assert abs(level_db(out[RATE + 1_000 : RATE + 3_000]) - level_db(both[RATE + 1_000 : RATE + 3_000])) < 0.5


def test_louder_noise_is_learned_again():
    samples = np.concatenate([noise(2), noise(4, level=0.2)])
    out = run(samples, [5_120])
    assert level_db(out[-RATE:]) < level_db(samples[-RATE:]) - 3


def test_digital_silence_stays_silent_and_finite():
    out = run(np.concatenate([np.zeros(RATE, np.float32), bursts(1), np.zeros(RATE, np.float32)]), [777])
    assert np.isfinite(out).all()
    assert not out[: RATE - HOP * 2].any()


def test_golden_case():
    """Levels (dB) of a fixed signal, a quarter of a second each; a change of the method shows here."""
    out = run(noise(2) + bursts(2), [1_234])
    levels = [level_db(quarter) for quarter in np.split(out, 8)]
    assert levels == pytest.approx(GOLDEN, abs=0.1)


def test_state_is_plain_values():
    state: DenoiseState = denoise(initial(), noise(1))[0]
    arrays = [state.pending, state.overlap, state.noise, state.speech, state.presence]
    assert {array.dtype for array in arrays} == {np.dtype(np.float32)}
    assert sum(array.nbytes for array in arrays) < 7_000
    assert all(array.base is None or array.base.nbytes < 10_000 for array in arrays)
