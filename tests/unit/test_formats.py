"""Transcripts as text, subtitles and JSON lines."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from ops.formats import render
from shared.captions import cues
from shared.events import Final, Word, parse_event


def final(text: str, start_ms: int, end_ms: int, words: list[tuple[str, int, int]] = [], n: int = 1) -> Final:  # noqa: B006
    return Final(
        session="s", event=n, utterance=n, text=text, stable=len(text), start_ms=start_ms, end_ms=end_ms,
        words=[Word(text=t, start_ms=a, end_ms=b) for t, a, b in words],
    )  # fmt: skip


SHORT = final("It was the best of times,", 1_220, 2_600)
AFTER_AN_HOUR = final("Fish & chips <now>", 3_723_004, 3_725_000, n=2)
LONG = final(
    "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen",
    1_000,
    18_000,
    [
        (word, 1_000 * (i + 1), 1_000 * (i + 1) + 900)
        for i, word in enumerate(
            [
                "one",
                "two",
                "three",
                "four",
                "five",
                "six",
                "seven",
                "eight",
                "nine",
                "ten",
                "eleven",
                "twelve",
                "thirteen",
                "fourteen",
                "fifteen",
                "sixteen",
                "seventeen",
            ]
        )
    ],
)


def test_text_is_one_line_per_utterance():
    assert render([SHORT, AFTER_AN_HOUR], "text") == "It was the best of times,\nFish & chips <now>\n"


def test_srt_numbers_its_cues_and_writes_comma_times():
    assert render([SHORT, AFTER_AN_HOUR], "srt") == (
        "1\n00:00:01,220 --> 00:00:02,600\nIt was the best of times,\n"
        "\n"
        "2\n01:02:03,004 --> 01:02:05,000\nFish & chips <now>\n"
    )


def test_vtt_has_its_header_and_escapes_markup():
    assert render([SHORT, AFTER_AN_HOUR], "vtt") == (
        "WEBVTT\n"
        "\n"
        "00:00:01.220 --> 00:00:02.600\nIt was the best of times,\n"
        "\n"
        "01:02:03.004 --> 01:02:05.000\nFish &amp; chips &lt;now&gt;\n"
    )


def test_a_long_utterance_is_cut_into_even_lines_at_word_times():
    assert render([LONG], "srt") == (
        "1\n00:00:01,000 --> 00:00:13,900\n"
        "one two three four five six seven\neight nine ten eleven twelve thirteen\n"
        "\n"
        "2\n00:00:14,000 --> 00:00:18,000\n"
        "fourteen fifteen sixteen seventeen\n"
    )


def test_words_without_times_are_spread_over_the_utterance():
    first, second = cues([LONG.model_copy(update={"words": []})])

    assert (first.start_ms, second.end_ms) == (1_000, 18_000)
    assert first.end_ms == second.start_ms == 1_000 + 17_000 * 72 // 107


def test_jsonl_is_the_final_events_without_their_trace():
    lines = render([SHORT, AFTER_AN_HOUR], "jsonl").splitlines()

    assert [parse_event(line) for line in lines] == [SHORT, AFTER_AN_HOUR]
    assert "trace" not in lines[0]


def test_utterances_without_words_leave_no_trace_in_any_format():
    silent = final("", 0, 900)

    assert [render([silent], form) for form in ("text", "srt", "jsonl")] == ["", "", ""]
    assert render([silent], "vtt") == "WEBVTT\n"


WORDS = st.lists(st.text(alphabet="abcdé'-.", min_size=1, max_size=42), min_size=1, max_size=60)


@given(utterances=st.lists(WORDS, min_size=1, max_size=4), ms_per_word=st.integers(0, 700))
def test_cues_keep_every_word_within_the_limits_and_never_overlap(utterances, ms_per_word):
    events, at = [], 0
    for n, words in enumerate(utterances, start=1):
        timed = [(word, at + i * ms_per_word, at + (i + 1) * ms_per_word) for i, word in enumerate(words)]
        end = at + len(words) * ms_per_word
        events.append(final(" ".join(words), at, end, timed, n))
        at = end

    found = cues(events)

    assert " ".join(" ".join(cue.lines) for cue in found).split() == [
        w for words in utterances for w in words
    ]
    assert all(len(cue.lines) <= 2 and max(map(len, cue.lines)) <= 42 for cue in found)
    assert all(cue.start_ms < cue.end_ms for cue in found)
    assert all(a.end_ms <= b.start_ms for a, b in pairwise(found))
