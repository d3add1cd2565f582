"""How many inputs each test feeds, and the one way to make them."""

from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

# Different ones: repetitions do not count.
INPUTS = {
    "messages": 3_000,
    "queries": 2_000,
    "audio": 1_700,
    "credentials": 1_300,
    "sessions": 1_100,
    "frames": 300,
    "heads": 500,
    "api": 100,
    "last event ids": 100,
}
_ROUNDS = 20


def fuzz(
    name: str,
    inputs: st.SearchStrategy[Any],
    check: Callable[[Any], None] = lambda _: None,
    key: Callable[[Any], str] = repr,
) -> list[Any]:
    """Check as many different inputs as the table says, and return them. `key`: what tells two apart.

    hypothesis never repeats its choices, but different ones may lead to the same input: it is asked again for the
    rest. Less in the end, for whatever reason, is a failure.
    """
    different: dict[int, Any] = {}

    def feed(each: Any) -> None:
        known_as = hash(key(each))
        if known_as not in different:
            check(each)
            different[known_as] = each

    for _ in range(_ROUNDS):
        if (missing := INPUTS[name] - len(different)) > 0:
            _run(feed, inputs, max(missing, 20))
    assert len(different) >= INPUTS[name], f"{name}: {len(different)} inputs instead of {INPUTS[name]}"
    return list(different.values())[: INPUTS[name]]


def _run(feed: Callable[[Any], None], inputs: st.SearchStrategy[Any], examples: int) -> None:
    @settings(
        max_examples=examples,
        derandomize=False,
        deadline=None,
        database=None,
        print_blob=True,
        suppress_health_check=[HealthCheck.too_slow],  # the machine may be busy
    )
    @given(inputs)
    def fuzzed(each: Any) -> None:
        feed(each)

    fuzzed()
