"""A final keeps what was promised and is otherwise as good as the model can make it."""

from dataclasses import dataclass, field

import numpy as np
import pytest

from workers.stages.finals import decode

WORDS = ["", "<s>", "</s>", "the", "The", "cat", "hat", "sat", ".", ",", "down", "Cat"]
HIDDEN = np.zeros((1, 1), np.float16)


class Vocabulary:
    def starts_word(self, token: int) -> bool:
        return WORDS[token].isalpha()

    def text(self, tokens) -> str:
        return "".join((" " if WORDS[t].isalpha() else "") + WORDS[t] for t in tokens).strip()


def tokens(text: str) -> tuple[int, ...]:
    return tuple(WORDS.index(word) for word in text.split())


@dataclass
class Searcher:
    """Says `free`, and when forced to begin with something, `led` after it."""

    free: str
    led: str = ""
    asked: list = field(default_factory=list)

    def decode(self, hidden, *, context=(), forced=(), guess=(), limit, scored=False):
        assert scored
        self.asked.append((tuple(context), tuple(forced)))
        found = (*forced, *tokens(self.led if forced else self.free))
        return Answer(found, tuple(-0.1 * i for i in range(len(found))))


@dataclass
class Answer:
    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]


def said(searcher: Searcher, promised: str = "", context: str = "") -> str:
    given = {"context": tokens(context), "promised": tokens(promised), "guess": ()}
    found = decode(searcher, Vocabulary(), HIDDEN, 48_000, **given)
    assert len(found.tokens) == len(found.logprobs)
    return Vocabulary().text(found.tokens)


def test_nothing_promised_is_a_free_search():
    assert said(Searcher("the cat sat .")) == "the cat sat."


def test_a_promise_that_was_found_again_keeps_its_own_writing():
    searcher = Searcher("The Cat , sat down .")

    assert said(searcher, promised="the cat") == "the cat sat down."
    assert len(searcher.asked) == 1


def test_a_promise_that_was_not_found_again_is_kept_all_the_same():
    searcher = Searcher("the hat sat .", led="sat down .")

    assert said(searcher, promised="the cat") == "the cat sat down."
    assert searcher.asked[-1] == ((), tokens("the cat"))


def test_the_text_before_is_context_without_its_closing_punctuation():
    searcher = Searcher(", cat sat .")

    assert said(searcher, context="The hat .") == "cat sat."
    assert searcher.asked == [(tokens("The hat"), ())]


@pytest.mark.parametrize("promised", ["", "the cat"])
def test_more_promised_than_found_still_holds(promised):
    assert said(Searcher("the", led=""), promised=promised) == (promised or "the")


def test_a_runaway_is_cut():
    assert said(Searcher("cat " * 9)) == "cat"


def test_a_promised_repetition_is_not_cut_back():
    assert said(Searcher("cat cat cat cat cat"), promised="cat cat cat") == "cat cat cat"
