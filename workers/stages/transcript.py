"""Pure helpers on hypotheses: what is stable, what is a runaway, which words and when."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Protocol

import numpy as np
import numpy.typing as npt

from workers.wire import SAMPLE_RATE

F16 = npt.NDArray[np.float16]

# The fastest speech in our data has 4.8 tokens a second; the rest is room for short utterances.
TOKENS_PER_SECOND = 6.5
TOKENS_EXTRA = 6
# A phrase of up to this many tokens said this often in a row is the model running away.
LOOP_TOKENS, LOOP_TIMES = 8, 4


class Vocabulary(Protocol):
    def starts_word(self, token: int) -> bool: ...

    def text(self, tokens: Sequence[int]) -> str: ...


class Hypothesis(Protocol):
    @property
    def tokens(self) -> tuple[int, ...]: ...

    @property
    def logprobs(self) -> tuple[float, ...]: ...


class Searcher(Protocol):
    def decode(
        self,
        hidden: F16,
        *,
        forced: Sequence[int] = (),
        guess: Sequence[int] = (),
        limit: int,
        scored: bool = False,
    ) -> Hypothesis:
        """Greedy search that begins with `forced` and may save time by verifying `guess` first."""
        ...


def limit(samples: int) -> int:
    """Most tokens that so much audio can hold."""
    return int(samples / SAMPLE_RATE * TOKENS_PER_SECOND) + TOKENS_EXTRA


def stable_prefix(vocabulary: Vocabulary, older: Sequence[int], newer: Sequence[int]) -> int:
    """Tokens that two successive hypotheses share, up to the last word boundary.

    The word in which they part, and a last word that more audio may still extend, are not stable
    (local agreement, Liu et al. 2020, "Low-latency sequence-to-sequence speech recognition").
    """
    same = 0
    while same < min(len(older), len(newer)) and older[same] == newer[same]:
        same += 1
    if same < len(newer) and vocabulary.starts_word(newer[same]):
        return same
    while same > 0 and not vocabulary.starts_word(newer[same - 1]):
        same -= 1
    return max(same - 1, 0)


def without_loops(tokens: Sequence[int]) -> tuple[int, ...]:
    """Cut a hypothesis after the first saying of a phrase that it repeats again and again."""
    for size in range(1, LOOP_TOKENS + 1):
        for start in range(len(tokens) - size * LOOP_TIMES + 1):
            phrase = tokens[start : start + size]
            if all(tokens[start + k * size : start + (k + 1) * size] == phrase for k in range(1, LOOP_TIMES)):
                return tuple(tokens[: start + size])
    return tuple(tokens)


def words_of(vocabulary: Vocabulary, tokens: Sequence[int]) -> list[tuple[int, int]]:
    """(first, past last) token of each word."""
    starts = [i for i, token in enumerate(tokens) if i == 0 or vocabulary.starts_word(token)]
    return list(pairwise([*starts, len(tokens)]))
