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
# What one pass may add to the hypothesis of the one before, beside the new audio's share: room to change its mind.
TOKENS_REVISED = 3
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
        context: Sequence[int] = (),
        forced: Sequence[int] = (),
        guess: Sequence[int] = (),
        limit: int,
        scored: bool = False,
        sketch: bool = False,
    ) -> Hypothesis:
        """Greedy search for what follows `context`, beginning with `forced`; `guess` only saves time.

        A sketch need not go on after a sentence end that the guess does not have.
        """
        ...


def limit(samples: int) -> int:
    """Most tokens that so much audio can hold."""
    return _share(samples) + TOKENS_EXTRA


def sketch_limit(earlier: int, fresh: int, samples: int) -> int:
    """Most tokens worth showing of so many samples, so many of them new since a hypothesis with `earlier` tokens.

    At the edge of the audio the model sometimes rambles: of 1,026 passes 10 % took from 8 to 26 calls.
    """
    return min(limit(samples), earlier + _share(fresh) + TOKENS_REVISED) if earlier else limit(samples)


def _share(samples: int) -> int:
    return int(samples / SAMPLE_RATE * TOKENS_PER_SECOND)


def stable_prefix(vocabulary: Vocabulary, hypotheses: Sequence[Sequence[int]]) -> int:
    """Tokens that successive hypotheses share, less the last shared word.

    Local agreement (Liu et al. 2020, "Low-latency sequence-to-sequence speech recognition"), but of three, and with a
    word's margin: what two hypotheses of this model agree on is still wrong so often that promising it costs
    0.8 points of word error rate, this 0.1 (ops/decisions/0004).
    """
    newest = hypotheses[-1]
    same = 0
    while same < min(map(len, hypotheses)) and all(h[same] == newest[same] for h in hypotheses):
        same += 1
    # Words that have begun in the shared part; the last of them, or all of it that another token may extend, is out.
    starts = [i for i in range(same) if i == 0 or vocabulary.starts_word(newest[i])]
    whole = same < len(newest) and vocabulary.starts_word(newest[same])
    starts = [*starts, same] if whole else starts
    return starts[-2] if len(starts) > 1 else 0


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
