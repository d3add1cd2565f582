"""What `streamscribe doctor` reports about one thing."""

from dataclasses import dataclass
from typing import Literal

Verdict = Literal["ok", "warning", "failure"]


@dataclass(frozen=True, slots=True)
class Finding:
    """`advice` says what to do; empty when there is nothing to do."""

    what: str
    verdict: Verdict
    detail: str
    advice: str = ""
