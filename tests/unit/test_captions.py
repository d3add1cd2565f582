"""Captions on terminals and in pipes."""

from io import StringIO

import pytest
from rich.console import Console

from ops.captions import Captions
from shared.events import Final, Gap, Partial, SpeechStart

TEXT = "it was the best of times, it was the worst of times, it was the age of wisdom"


def partial(text: str, stable: int) -> Partial:
    return Partial(session="s", utterance=1, text=text, stable=stable, start_ms=0, end_ms=1)


def final(text: str) -> Final:
    return Final(session="s", utterance=1, text=text, stable=len(text), start_ms=0, end_ms=1)


def show(events, *, terminal=False, width=40, height=10, partials=None) -> str:
    console = Console(
        file=StringIO(),
        force_terminal=terminal,
        width=width,
        height=height,
        highlight=False,
        color_system="standard" if terminal else "auto",
    )
    with Captions(console, partials=partials) as captions:
        for event in events:
            captions.show(event)
    return console.file.getvalue()


def test_a_pipe_gets_finals_only_one_line_each_however_long():
    shown = show(
        [SpeechStart(session="s", utterance=1, start_ms=0), partial("it", 0), final(TEXT), final("")]
    )

    assert shown == TEXT + "\n"


def test_a_pipe_gets_partials_when_asked():
    assert show([partial("it was", 2), final("it is")], partials=True) == "… it was\nit is\n"


def test_on_a_terminal_only_what_may_change_is_dim():
    shown = show([partial("it was the best", 6)], terminal=True)

    assert "it was\x1b[2m the best\x1b[0m" in shown


@pytest.mark.parametrize("width", [1, 7, 40, 200])
def test_the_open_utterance_never_outgrows_the_terminal(width):
    console = Console(file=StringIO(), force_terminal=True, width=width, height=5, highlight=False)
    with Captions(console) as captions:
        captions.show(partial(TEXT, 10))
        drawn = console.file.getvalue()

    assert drawn.count("\n") < 5


def test_text_that_looks_like_markup_stays_text():
    assert show([final("[bold]loud[/bold] :smile:")]) == "[bold]loud[/bold] :smile:\n"


def test_lost_audio_is_shown_between_the_lines():
    gap = Gap(session="s", start_ms=1000, end_ms=3500, reason="client_too_fast")

    assert show([final("one"), gap]) == "one\n[2.5 s of audio lost: client_too_fast]\n"
