"""Utterances as subtitles: cues that can be read in the time they are shown."""

import html
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from shared.events import Final

# What subtitle style guides agree on (BBC 37, Netflix 42): two lines, each read in one glance.
LINE_CHARS = 42
CUE_LINES = 2


@dataclass(frozen=True, slots=True)
class Cue:
    start_ms: int
    end_ms: int
    lines: tuple[str, ...]


def cues(finals: Iterable[Final]) -> list[Cue]:
    """Cut utterances into cues of at most two lines of 42 characters, at word times, without overlaps."""
    found: list[Cue] = []
    for final in finals:
        for cue in _cues_of(final) if final.text.strip() else ():
            start = max(cue.start_ms, found[-1].end_ms) if found else cue.start_ms
            found.append(Cue(start, max(cue.end_ms, start + 1), cue.lines))
    return found


def srt(finals: Sequence[Final]) -> str:
    """SubRip."""
    blocks = [
        f"{n}\n{_stamp(cue.start_ms, ',')} --> {_stamp(cue.end_ms, ',')}\n"
        + "".join(f"{x}\n" for x in cue.lines)
        for n, cue in enumerate(cues(finals), start=1)
    ]
    return "\n".join(blocks)


def vtt(finals: Sequence[Final]) -> str:
    """WebVTT."""
    blocks = ["WEBVTT\n"]
    blocks += [
        f"{_stamp(cue.start_ms, '.')} --> {_stamp(cue.end_ms, '.')}\n"
        + "".join(f"{html.escape(x, quote=False)}\n" for x in cue.lines)
        for cue in cues(finals)
    ]
    return "\n".join(blocks)


def _cues_of(final: Final) -> list[Cue]:
    lines = _balanced_lines(final.text)
    times = _word_times(final)
    found, first = [], 0
    for at in range(0, len(lines), CUE_LINES):
        group = tuple(lines[at : at + CUE_LINES])
        beyond = first + sum(len(line.split()) for line in group)
        start = times[first][0] if first else final.start_ms
        end = times[beyond - 1][1] if beyond < len(times) else final.end_ms
        found.append(Cue(start, end, group))
        first = beyond
    return found


def _balanced_lines(text: str) -> list[str]:
    """As few lines as fit, then as even as possible: no line of one last word."""
    fewest = _wrap(text, LINE_CHARS)
    longest_word = max(len(word) for word in text.split())
    for width in range(min(longest_word, LINE_CHARS), LINE_CHARS):
        lines = _wrap(text, width)
        if len(lines) == len(fewest):
            return lines
    return fewest


def _wrap(text: str, width: int) -> list[str]:
    # A word longer than a line stays whole: halves of it would have no time of their own.
    return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)


def _word_times(final: Final) -> list[tuple[int, int]]:
    """Start and end of every word; spread over the utterance by length when the event's words differ from its text."""
    words = final.text.split()
    if [word.text for word in final.words] == words:
        return [(word.start_ms, word.end_ms) for word in final.words]
    span, total = final.end_ms - final.start_ms, sum(len(word) + 1 for word in words)
    edges, done = [final.start_ms], 0
    for word in words:
        done += len(word) + 1
        edges.append(final.start_ms + span * done // total)
    return list(pairwise(edges))


def _stamp(ms: int, point: str) -> str:
    seconds, milli = divmod(ms, 1000)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02d}:{minutes:02d}:{seconds:02d}{point}{milli:03d}"
