"""What is there at the start does not slow the process down for ever."""

import gc

import psutil
import pytest

from shared import heap


def test_what_was_there_is_not_looked_through_again():
    old = [[] for _ in range(1000)]
    try:
        heap.settle()
        looked_at = {id(each) for each in gc.get_objects()}
        assert not looked_at & {id(each) for each in old}
    finally:
        gc.unfreeze()


@pytest.mark.skipif(heap._malloc_trim is None, reason="not glibc")
def test_holes_are_given_back():
    pieces = [bytearray(100_000) for _ in range(1_000)]
    kept = pieces[::10]
    del pieces
    before = psutil.Process().memory_info().rss

    heap.trim()

    assert len(kept) == 100
    assert psutil.Process().memory_info().rss < before - 50_000_000
