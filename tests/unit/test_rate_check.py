"""Audio announced with a sample rate that it does not have is told apart from audio that is only unusual."""

from pathlib import Path

import numpy as np
import pytest
import soundfile
import soxr
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.pace import RATE, pace
from gateway.pace_model import MODEL
from gateway.rate_check import WINDOW_S, RateCheck, likely_rate
from ops.bench import sounds
from shared.protocol import SessionOptions

RECORDING = Path(__file__).parents[2] / "ops/assets/demo.flac"
WINDOW = WINDOW_S * RATE


def talk(rate: int = RATE, seconds: float = WINDOW_S) -> np.ndarray:
    """The recording at this rate, over and over."""
    samples = soxr.resample(soundfile.read(RECORDING, dtype="float32")[0], RATE, rate)
    return np.resize(samples, int(seconds * rate))


def brisk(rate: int) -> np.ndarray:
    """As if by a speaker who is a fifth faster: the recording's own is so slow that twice his pace is not told."""
    return talk(int(rate / 1.2), 60)


def heard(samples: np.ndarray, announced: int) -> bytes:
    """A window as a gateway decodes it."""
    ours = soxr.resample(samples, announced, RATE)[:WINDOW]
    return np.rint(np.clip(ours, -1, 1) * 32_767).astype("<i2").tobytes()


@pytest.mark.parametrize(("true", "announced"), [(8_000, 16_000), (16_000, 8_000), (48_000, 16_000)])
def test_a_wrong_rate_is_told_with_the_one_that_would_be_right(true, announced):
    samples = brisk(true) if true < announced else talk(true, 60)

    assert likely_rate(heard(samples, announced), announced) == true


@pytest.mark.parametrize("rate", [8_000, 11_025, 16_000, 22_050, 24_000, 44_100, 48_000])
def test_a_right_rate_is_no_cause_for_advice(rate):
    assert likely_rate(heard(talk(rate), rate), rate) is None


def test_telephone_speech_brought_to_16_khz_is_no_cause_for_advice():
    narrow = soxr.resample(sounds.companded(talk(8_000)), 8_000, RATE)

    assert likely_rate(heard(narrow, RATE), RATE) is None


@pytest.mark.parametrize("session", list(sounds.synthetic(WINDOW_S)), ids=lambda session: session.speaker)
@pytest.mark.parametrize("announced", [8_000, 16_000, 48_000])
def test_sounds_that_are_no_speech_are_no_cause_for_advice(session, announced):
    assert likely_rate(heard(session.samples, RATE), announced) is None


@pytest.mark.parametrize("samples", [np.zeros(WINDOW), np.full(WINDOW, 0.5)], ids=["silence", "a constant"])
def test_nothing_to_hear_is_no_cause_for_advice(samples):
    assert pace(samples.astype(np.float32), MODEL) is None or likely_rate(heard(samples, RATE), RATE) is None


def test_the_slower_speech_is_played_the_slower_it_is_found():
    found = [
        pace(soxr.resample(talk(), rate, RATE)[:WINDOW], MODEL)
        for rate in (8_000, 11_000, 16_000, 22_000, 32_000)
    ]

    octaves = [each.octaves for each in found if each]
    assert len(octaves) == 5
    assert octaves == sorted(octaves)


async def advice_of(raw: bytes, sizes: list[int], **options) -> list[tuple[int, int]]:
    """After which byte it was advised, and the rate."""
    check, advised, at, turn = RateCheck(SessionOptions(**options)), [], 0, 0
    while at < len(raw):
        size = sizes[turn % len(sizes)]
        check.hear(raw[at : at + size])
        at, turn = at + size, turn + 1
        if advice := await check.advice():
            advised.append((at, advice.likely))
    return advised


@settings(max_examples=5, deadline=None)
@given(st.lists(st.integers(1_000, 60_000), min_size=1, max_size=4))
async def test_the_client_is_advised_once_by_the_second_window_however_its_audio_is_cut(sizes):
    raw = heard(brisk(8_000), 16_000)
    advised = await advice_of(raw * 3, sizes, sample_rate=16_000)

    assert [rate for _, rate in advised] == [8_000]
    assert 0 <= advised[0][0] - 2 * WINDOW * 2 < max(sizes)


async def test_one_window_that_sounds_wrong_is_not_enough():
    wrong, right = heard(brisk(8_000), 16_000), heard(talk(), RATE)

    assert await advice_of(wrong + right * 4, [32_000], sample_rate=16_000) == []


async def test_after_a_minute_nothing_is_looked_at_any_more():
    wrong, right = heard(brisk(8_000), 16_000), heard(talk(), RATE)

    assert await advice_of(right * 4 + wrong * 3, [32_000], sample_rate=16_000) == []
