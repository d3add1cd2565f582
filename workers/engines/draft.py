"""Speculative decoding with a known draft: an earlier hypothesis for nearly the same audio.

Verifying tokens in one call is cheaper than finding them one by one, so the search is shown what an earlier one said. It goes its
own way where the audio says something else: it may replace, leave out or add tokens. Looking for its last token a
little further on in the guess finds the place to go on from (as prompt lookup decoding does, Saxena 2023).
"""

from collections.abc import Sequence

# How far ahead in the guess the search is looked for.
NEAR = 8


class Draft:
    """What a guess says comes next."""

    def __init__(self, guess: Sequence[int]) -> None:
        self._guess = list(guess)
        self._at = 0
        self._hopeful = True

    def next(self, room: int) -> list[int]:
        """Tokens worth verifying; none while the search is elsewhere."""
        return self._guess[self._at : self._at + room] if self._hopeful else []

    def heard(self, agreed: int, following: int) -> None:
        """So many of the proposed tokens were right, and then came this one."""
        self._at += agreed
        back = max(self._at - 1, 0)  # one that was taken for replaced may only have come later
        near = self._guess[back : back + NEAR]
        if following in near:
            self._at = back + near.index(following) + 1
            self._hopeful = True
            return
        # It may have replaced a token: what comes after that is worth a try, but not twice without success.
        self._hopeful = self._hopeful and (agreed > 0 or self._at == 0)
        self._at += self._hopeful
