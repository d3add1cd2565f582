"""The measurements of ops/bench measure something."""

import pytest

from ops.bench.finalize import DIALECTS, measure, turns_of


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_every_dialect_answers_when_a_turn_is_said_to_be_over(fleet, dialect):
    how = DIALECTS[dialect]
    speech = turns_of(0.4, how.rate)
    waits = await measure(fleet.url, how, speech, sessions=1, turns=1, pause_s=0.0)

    assert len(waits) == 1
    assert all(0 < wait < 5_000 for wait in waits)
