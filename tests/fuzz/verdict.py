"""What no client may ever be told, and what every complaint must say."""

import re

from shared import errors
from shared.errors import BadInput
from tests.fuzz.texts import FIELDS

# HTTP's own words, such as Forbidden, are no secret.
_OURS = "|".join(name for name in vars(errors) if re.fullmatch(r"([A-Z][a-z]+){2,}", name))
# An exception's class, a traceback, a file or an object of ours.
INTERNAL = re.compile(
    rf"Traceback|\b([A-Za-z]+(Error|Exception|Warning)|{_OURS})\b|\.py\b|site-packages|/work/|object at 0x|pydantic"
)
LONGEST = 400
NAMED = (*FIELDS, "JSON", "query", "characters", "parameters", "encoding")


def assert_told_well(said: str, about: object) -> None:
    """One short sentence about what the client did, of nothing that is ours alone."""
    assert said, f"nothing was said about {about!r:.300}"
    assert len(said) <= LONGEST, f"{len(said)} characters about {about!r:.300}: {said[:300]}"
    assert INTERNAL.search(said) is None, f"{said!r} about {about!r:.300}"


def assert_named(error: BadInput, about: object) -> None:
    """It says which part of the message was wrong."""
    said = str(error)
    assert_told_well(said, about)
    assert any(name in said for name in NAMED), f"{said!r} names nothing of {about!r:.300}"
    if match := re.search(r"unknown parameter '(.*)'; known are (.*)", said):
        assert match[1] not in match[2].split(", "), said
