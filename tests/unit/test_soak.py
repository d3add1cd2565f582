"""The soak's verdict can go both ways."""

import random

import pytest

from tests.soak.meters import Sample
from tests.soak.verdict import growth

MB = 1_000_000


def samples(*, leak_mb: float = 0, keys_left: int = 0, warm_up_mb: int = 300) -> list[Sample]:
    """Ten minutes, every 10 s, noisy as real ones; `leak_mb` and `keys_left` are for each look."""
    chance = random.Random(3)
    return [
        Sample(
            seconds=10 * n,
            memory={"gateway": round((100 + min(n, 20) * warm_up_mb / 20 + leak_mb * n) * MB)},
            threads=20,
            files=90 + chance.randrange(5),
            redis_bytes=9 * MB + chance.randrange(MB // 2),
            keys=400 + chance.randrange(20) + keys_left * n,
            sessions=12 * n,
        )
        for n in range(1, 61)
    ]


def grown(taken: list[Sample]) -> set[str]:
    return {found.name for found in growth(taken) if not found.flat}


def test_noise_and_a_warm_up_are_flat():
    assert grown(samples()) == set()


@pytest.mark.parametrize(
    ("leak", "name"), [({"leak_mb": 1}, "memory of gateway"), ({"keys_left": 2}, "keys")]
)
def test_what_each_session_leaves_behind_is_found(leak, name):
    assert grown(samples(**leak)) == {name}
