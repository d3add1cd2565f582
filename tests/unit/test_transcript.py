"""What of a hypothesis is stable, what is a runaway, which words it has and when."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes import NumberVocabulary
from workers.stages.transcript import limit, sketch_limit, stable_prefix, without_loops, words_of
from workers.stages.wordtimes import STEP, loudness, spans


class Pieces:
    """Capital letters start words."""

    def starts_word(self, token: int) -> bool:
        return chr(token).isupper()

    def text(self, tokens) -> str:
        return "".join(map(chr, tokens))


def tokens(text: str) -> tuple[int, ...]:
    return tuple(map(ord, text))


@pytest.mark.parametrize(
    ("hypotheses", "stable"),
    [
        (["", "HelloWorld", "HelloWorldAgain"], ""),
        (["HelloBig", "HelloBigWorld", "HelloBigWorld"], "Hello"),
        (["HelloBigWor", "HelloBigWorld", "HelloBigWorld"], "Hello"),
        (["HelloBigWord", "HelloBigWorld", "HelloBigWorld"], "Hello"),
        (["HelloBigWorld", "HelloBigWorld", "HelloBigWorldAgain"], "HelloBig"),
        (["HelloBigWorld", "HelloBigWorld", "HelloBigWorld."], "Hello"),
        (["HelloBigWorld", "Goodbye", "HelloBigWorld"], ""),
    ],
)
def test_stable_is_what_hypotheses_share_less_a_word(hypotheses, stable):
    parsed = [tokens(hypothesis) for hypothesis in hypotheses]

    assert hypotheses[-1][: stable_prefix(Pieces(), parsed)] == stable


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("", ""),
        ("NoNoNo", "NoNoNo"),
        ("NoNoNoNoNo", "No"),
        ("SoVeryVeryVeryVeryGood", "SoVery"),
        ("AbCdAbCdAbCdAbCd", "AbCd"),
    ],
)
def test_a_phrase_said_four_times_in_a_row_is_kept_once(said, kept):
    assert without_loops(tokens(said)) == tokens(kept)


def test_the_token_limit_grows_with_the_audio():
    assert (limit(0), limit(16_000), limit(160_000)) == (6, 12, 71)


def test_a_partial_adds_little_more_to_the_one_before_than_the_new_audio_can_hold():
    second = 16_000
    assert sketch_limit(earlier=20, fresh=second, samples=10 * second) == 20 + 6 + 3
    assert sketch_limit(earlier=20, fresh=second, samples=2 * second) == limit(2 * second)
    assert sketch_limit(earlier=0, fresh=second, samples=2 * second) == limit(2 * second)


def test_no_tokens_are_no_words():
    assert words_of(NumberVocabulary(), ()) == []
    assert words_of(Pieces(), tokens("HelloWorld")) == [(0, 5), (5, 10)]


def test_words_go_where_sound_is_and_boundaries_where_it_is_not():
    """Two bursts of 0.4 s with 0.2 s between them, in silence."""
    burst, pause = np.full(6400, 0.5, np.float32), np.zeros(3200, np.float32)
    profile = loudness(np.concatenate([pause, burst, pause, burst, pause]))

    (first, second) = spans([4, 5], profile)

    assert first == (3200, 9600)
    assert second == (12_800, 19_200)


@given(st.lists(st.integers(1, 12), max_size=12), st.binary(max_size=400))
def test_word_times_are_in_order_and_inside_the_utterance(lengths, profile):
    times = spans(lengths, profile)

    assert len(times) == len(lengths)
    flat = [at for span in times for at in span]
    assert flat == sorted(flat)
    assert all(0 <= at <= len(profile) * STEP for at in flat)


def test_loudness_is_half_a_decibel_a_step():
    full, half = loudness(np.ones(STEP, np.float32)), loudness(np.full(STEP, 0.5, np.float32))

    assert (full, half) == (bytes([255]), bytes([243]))
