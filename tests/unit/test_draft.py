"""A guess is followed as far as the search agrees, and found again where it does."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.engines.draft import Draft

Tokens = st.lists(st.integers(0, 5), max_size=12)


def search(truth: str, guess: str) -> int:
    """Calls a search needs that finds `truth` (its last token ends it), a letter a token."""
    draft, at, calls = Draft([ord(c) for c in guess]), 0, 0
    while at < len(truth):
        proposed = draft.next(len(truth) - 1 - at)
        agreed = 0
        while agreed < len(proposed) and proposed[agreed] == ord(truth[at + agreed]):
            agreed += 1
        draft.heard(agreed, ord(truth[at + agreed]))
        at += agreed + 1
        calls += 1
    return calls


@pytest.mark.parametrize(
    ("guess", "calls"),
    [
        ("abcdefghij", 1),  # all of it right
        ("abcdefg", 4),  # the end not known yet
        ("", 11),
        ("abcXefghij", 2),  # one token replaced
        ("abcefghij", 3),  # one left out: it is met again a token later
        ("abcXdefghij", 2),  # one too many
        ("Xbcdefghij", 2),
        ("XYZUVWXYZU", 11),  # nothing right costs no more than nothing known
    ],
)
def test_a_search_for_ten_tokens_and_an_end_needs_so_many_calls(guess, calls):
    assert search("abcdefghij.", guess) == calls


@given(Tokens, Tokens)
def test_a_guess_never_costs_calls(truth, guess):
    letters = [chr(97 + token) for token in truth], [chr(97 + token) for token in guess]

    assert search("".join(letters[0]) + ".", "".join(letters[1])) <= len(truth) + 1
