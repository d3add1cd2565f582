"""The last word on an utterance: decode it freely, but keep what was promised.

A final that is *forced* to begin with the promised tokens has 0.4 points more word errors than a free one: the
quantised decoder is less exact on many tokens at once. So the search is free, and the promised surface
replaces the beginning of what it found if both say the same words; only otherwise the search is forced.
The text of the utterances before is always forced, as context, without its closing punctuation, which would make
the model start a new sentence (figures: ops/decisions/0004).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from workers.stages.transcript import F16, Hypothesis, Searcher, Vocabulary, limit, without_loops, words_of


@dataclass(frozen=True, slots=True)
class Found:
    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]


def decode(
    searcher: Searcher,
    vocabulary: Vocabulary,
    hidden: F16,
    samples: int,
    *,
    context: Sequence[int],
    promised: Sequence[int],
    guess: Sequence[int],
) -> Found:
    """Tokens of an utterance of so many samples, given those before it, those promised, and a guess to save time."""
    context, most = _open_ended(vocabulary, context), limit(samples)
    free = searcher.decode(hidden, context=context, guess=guess, limit=most, scored=True)
    kept = _honour(vocabulary, promised, _cleaned(vocabulary, free))
    if kept is None:
        forced = searcher.decode(hidden, context=context, forced=promised, limit=most, scored=True)
        kept = Found(forced.tokens, forced.logprobs)
    tokens = max(without_loops(kept.tokens), tuple(promised), key=len)
    return Found(tokens, kept.logprobs[: len(tokens)])


def _honour(vocabulary: Vocabulary, promised: Sequence[int], free: Found) -> Found | None:
    """What was found, beginning with the promised tokens; None when its words are others."""
    theirs = words_of(vocabulary, promised)
    ours = words_of(vocabulary, free.tokens)[: len(theirs)]
    if [_word(vocabulary, promised, w) for w in theirs] != [_word(vocabulary, free.tokens, w) for w in ours]:
        return None
    rest = ours[-1][1] if ours else 0
    scores = [
        sum(free.logprobs[a:b]) / (b - a)
        for (a, b), (c, d) in zip(ours, theirs, strict=True)
        for _ in range(c, d)
    ]
    return Found((*promised, *free.tokens[rest:]), (*scores, *free.logprobs[rest:]))


def _word(vocabulary: Vocabulary, tokens: Sequence[int], word: tuple[int, int]) -> str:
    text = vocabulary.text(tokens[word[0] : word[1]])
    return "".join(character for character in text.casefold() if character.isalnum())


def _cleaned(vocabulary: Vocabulary, found: Hypothesis) -> Found:
    """Without leading punctuation, which belongs to the end of the context."""
    skip = 0
    while skip < len(found.tokens) and _is_punctuation(vocabulary, found.tokens[skip]):
        skip += 1
    return Found(found.tokens[skip:], found.logprobs[skip:])


def _open_ended(vocabulary: Vocabulary, tokens: Sequence[int]) -> Sequence[int]:
    end = len(tokens)
    while end and _is_punctuation(vocabulary, tokens[end - 1]):
        end -= 1
    return tokens[:end]


def _is_punctuation(vocabulary: Vocabulary, token: int) -> bool:
    text = vocabulary.text([token])
    return bool(text) and not any(character.isalnum() for character in text)
