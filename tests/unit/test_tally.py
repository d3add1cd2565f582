"""How far a batch is, how fast it goes, and in which words that is told."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from ops.batch_bars import Bars
from ops.tally import Tally, duration, files, speed

A, B, C = Path("a.wav"), Path("b.wav"), Path("c.wav")


@pytest.mark.parametrize(
    ("audio_s", "wall_s", "told"),
    [(123, 10, "12.3×"), (1, 1, "1.0×"), (0.5, 1, "0.50×"), (4_567, 10, "457×"), (5, 0, "0.00×")],  # noqa: RUF001
)
def test_the_real_time_factor_is_audio_per_time(audio_s, wall_s, told):
    assert speed(audio_s, wall_s) == f"{told} real time"


def test_durations_read_like_a_clock():
    assert [duration(s) for s in (0, 9.4, 59.6, 61, 3_725)] == ["0:00", "0:09", "1:00", "1:01", "1:02:05"]


def test_one_file_is_no_files():
    assert (files(1), files(2)) == ("1 file", "2 files")


def test_what_is_not_decoded_yet_is_guessed_from_its_size():
    tally = Tally({A: 1_000, B: 3_000, C: 0})

    assert (tally.total_s, tally.guessed) == (None, True)
    tally.opened(A, 10)
    assert (tally.total_s, tally.guessed) == (40, True)
    tally.opened(B, 20)
    assert (tally.total_s, tally.guessed) == (30, False)


def test_the_time_left_is_what_the_rest_takes_at_the_speed_so_far():
    tally = Tally({A: 1_000, B: 3_000})
    tally.opened(A, 10)

    assert tally.left_s(1.0) is None
    tally.heard(A, 5)
    assert tally.left_s(1.0) == pytest.approx(7)  # 35 s at 5 s a second


def test_a_finished_file_counts_whole_though_its_last_event_comes_before_its_end():
    tally = Tally({A: 1})
    tally.opened(A, 10)
    tally.heard(A, 8)

    assert tally.finished(A, failed=False) == 10
    assert (tally.heard_s, tally.total_s, tally.done) == (10, 10, 1)


def test_progress_never_goes_back_nor_beyond_the_end():
    tally = Tally({A: 1})
    tally.opened(A, 10)

    assert [tally.heard(A, through) for through in (4, 2, 99)] == [4, 4, 10]


def test_of_a_file_that_fails_only_what_was_done_counts():
    tally = Tally({A: 1_000, B: 1_000, C: 2_000})
    tally.finished(C, failed=True)  # could not be decoded
    tally.opened(A, 10)
    tally.heard(A, 4)
    tally.finished(A, failed=True)
    tally.opened(B, 20)

    assert (tally.heard_s, tally.total_s, tally.failed, tally.done) == (4, 24, 2, 0)


def test_a_stream_is_as_long_as_it_was():
    tally = Tally({A: 0})
    tally.opened(A, None)
    tally.heard(A, 7)

    assert (tally.total_s, tally.left_s(1)) == (None, None)
    assert tally.finished(A, failed=False) == 7
    assert tally.total_s == 7


def told(*, terminal: bool, before: int = 0) -> str:
    """What is written about two files, of which one fails."""
    console = Console(file=io.StringIO(), force_terminal=terminal, width=80, color_system=None)
    with Bars(console, {A: 1, B: 1}, before=before) as bars:
        bars.opened(A, 10)
        bars.opened(B, 20)
        bars.finished(B, "b.wav: [bold] no audio")
        bars.heard(A, 10)
        bars.finished(A)
    bars.summary()
    return console.file.getvalue()


def test_off_a_terminal_each_file_has_a_line_and_a_failure_its_reason():
    failed, done, summary = told(terminal=False, before=1).splitlines()

    assert failed == "error: b.wav: [bold] no audio"
    assert done.startswith("[3/3] a.wav: 0:10 in 0:00, ")
    assert done.endswith("× real time")  # noqa: RUF001
    assert summary.startswith("1 file: 0:10 of audio in 0:00, ")
    assert summary.endswith("× real time, 1 failed")  # noqa: RUF001


def test_on_a_terminal_bars_say_how_far_it_is_and_go_away():
    shown = told(terminal=True)

    assert "0 of 2 files" in shown
    assert "0:10 of 0:10" in shown
    assert "error: b.wav: [bold] no audio" in shown
    assert "1 file: 0:10 of audio" in shown.splitlines()[-1]
    assert "[2/2]" not in shown
