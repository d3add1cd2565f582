"""Word error rate, its interval, latency percentiles and stability."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ops.scoring import Percentiles, Score, percentiles, score, stability_violations, wer, wer_interval
from shared.events import Final, Partial


def partial(text: str, stable: int, utterance: int = 1) -> Partial:
    return Partial(session="s", utterance=utterance, text=text, stable=stable, start_ms=0, end_ms=1)


def final(text: str, utterance: int = 1) -> Final:
    return Final(session="s", utterance=utterance, text=text, stable=len(text), start_ms=0, end_ms=1)


@pytest.mark.parametrize(
    ("reference", "hypothesis", "errors", "words"),
    [
        ("the cat sat", "the cat sat", 0, 3),
        ("the cat sat", "The cat, sat.", 0, 3),  # case and punctuation are not words
        ("mister smith's colour", "Mr. Smith's color", 0, 4),  # nor spellings; "smith's" is "smith is"
        ("twenty one cats", "21 cats", 0, 2),
        ("the cat sat", "the bat", 2, 3),  # one substitution, one deletion
        ("the cat", "the fat cat", 1, 2),  # one insertion
        ("the cat", "", 2, 2),
        ("", "you", 1, 0),  # heard in silence
        ("", "", 0, 0),
    ],
)
def test_errors_are_counted_in_normalised_words(reference, hypothesis, errors, words):
    found = score(reference, hypothesis)

    assert (found.errors, found.words) == (errors, words)


@pytest.mark.parametrize(
    ("hypothesis", "missing"),
    [
        ("the cat sat", 0),
        ("the cat", 1),
        ("the", 2),
        ("", 3),
        ("a cat hat", 0),
        ("cat sat", 0),
        ("the cat mat sat", 0),
    ],
)
def test_words_missing_at_the_end_are_told_from_wrong_ones(hypothesis, missing):
    assert score("the cat sat", hypothesis).missing_at_end == missing


def test_word_error_rate_weighs_utterances_by_their_words():
    assert wer([Score(1, 1), Score(0, 9)]) == pytest.approx(0.1)


def test_without_reference_words_there_is_no_rate():
    assert wer([Score(3, 0)]) is None
    assert wer_interval([Score(3, 0)]) is None
    assert wer_interval([]) is None


def test_interval_of_half_wrong_utterances_matches_the_binomial():
    low, high = wer_interval([Score(1, 1), Score(0, 1)] * 200)

    # 400 independent words at 50 %: 0.5 ± 1.96 * sqrt(0.25 / 400) = 0.451 … 0.549
    assert (low, high) == (pytest.approx(0.451, abs=0.01), pytest.approx(0.549, abs=0.01))


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(1, 20)), min_size=1, max_size=40))
def test_interval_is_repeatable_and_within_the_worst_and_best_utterance(counts):
    scores = [Score(*c) for c in counts]
    rates = [s.errors / s.words for s in scores]

    low, high = wer_interval(scores)

    assert (low, high) == wer_interval(scores)
    assert min(rates) - 1e-9 <= low <= high <= max(rates) + 1e-9


def test_percentiles_of_a_known_series():
    assert percentiles(list(range(101))) == Percentiles(avg=50, p50=50, p95=95, p99=99)
    assert percentiles([]) == Percentiles()


def test_growing_stable_text_is_no_violation():
    events = [partial("it was", 2), partial("it is the", 3), final("it is the best")]

    assert stability_violations(events) == 0


def test_a_change_of_stable_text_is_counted_once_per_change_and_per_utterance():
    events = [
        partial("it was", 6),
        partial("it is the", 5),  # took back "was"
        partial("anything", 0, utterance=2),
        final("it is the best"),
        final("else", utterance=2),
    ]

    assert stability_violations(events) == 1
