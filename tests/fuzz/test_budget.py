"""10,000 inputs, each of them fed by a test."""

import re
from pathlib import Path

from tests.fuzz.budget import INPUTS


def test_there_are_ten_thousand_inputs_and_each_test_feeds_those_it_is_down_for():
    sources = "".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    fed = re.findall(r'\bfuzz\("([^"]+)",', sources)

    assert sorted(fed) == sorted(INPUTS)  # `fuzz` fails when it is fewer than the table says
    assert sum(INPUTS.values()) >= 10_000
