"""Whether a fleet's use is flat: the last fifth of a run against the middle one. What comes before is its warm-up."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from tests.soak.meters import Sample

# How much each may grow. Redis holds what random sessions have left in the last minute, which is never the same twice.
LIMITS = {"memory": 0.03, "threads": 0.03, "files": 0.05, "redis_bytes": 0.1, "keys": 0.1}


@dataclass(frozen=True)
class Growth:
    name: str
    before: float
    after: float

    @property
    def share(self) -> float:
        return self.after / self.before - 1

    @property
    def limit(self) -> float:
        return next(limit for start, limit in LIMITS.items() if self.name.startswith(start))

    @property
    def flat(self) -> bool:
        return self.share <= self.limit


def growth(samples: Sequence[Sample]) -> list[Growth]:
    """Medians of both fifths, for everything that must not grow. At least five samples."""
    fifth = len(samples) // 5
    before, after = samples[2 * fifth : 3 * fifth], samples[-fifth:]
    return [
        Growth(name, median(s.series()[name] for s in before), median(s.series()[name] for s in after))
        for name in samples[-1].series()
    ]
