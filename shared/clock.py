"""The two clocks, and which is for what."""

import time


def wall_ms() -> float:
    """Time of day in Unix milliseconds: for stamps that cross processes. It can step."""
    return time.time() * 1000


def mono_ms() -> float:
    """Milliseconds from an arbitrary start: for durations and deadlines inside one process."""
    return time.monotonic() * 1000
