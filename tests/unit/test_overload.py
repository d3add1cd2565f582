"""One late token is a dead peer's; a long row of them is overload."""

from workers.overload import Overload
from workers.stage import Haste


def test_a_token_that_came_in_time_leaves_nothing_out():
    assert Overload().taken(100, 0) == Haste.NONE


def test_a_late_token_leaves_out_what_is_only_shown_however_late_it_is():
    overload = Overload()
    assert overload.taken(101, 0) == Haste.BEHIND
    assert overload.taken(60_000, 9_999) == Haste.BEHIND


def test_after_ten_seconds_of_nothing_but_late_tokens_all_but_finals_is_left_out_of_the_very_late_ones():
    overload = Overload()
    for second in range(10):
        assert overload.taken(5000, second * 1000) == Haste.BEHIND
    assert overload.taken(2001, 10_000) == Haste.FAR_BEHIND
    assert overload.taken(2000, 10_001) == Haste.BEHIND
    assert overload.taken(2001, 10_002) == Haste.FAR_BEHIND


def test_a_worker_that_was_idle_in_between_is_not_overloaded_by_a_dead_peers_token():
    overload = Overload()
    overload.taken(150, 0)
    assert overload.taken(2500, 20_000) == Haste.BEHIND


def test_one_token_in_time_ends_the_row():
    overload = Overload()
    for second in range(10):
        overload.taken(50 if second == 5 else 5000, second * 1000)
    assert overload.taken(5000, 10_000) == Haste.BEHIND
