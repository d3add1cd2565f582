"""Lets a signal step this process' wall clock by an hour: forwards (SIGUSR1) or back (SIGUSR2)."""

import signal
import time
from types import SimpleNamespace

from shared import clock

STEP_S = 3600


def steppable() -> None:
    """Only shared/clock.py is told another time; timers and time-outs keep the real one, as after a real step."""
    offset = 0.0

    def step(number: int, _frame: object) -> None:
        nonlocal offset
        offset += STEP_S if number == signal.SIGUSR1 else -STEP_S

    clock.time = SimpleNamespace(time=lambda: time.time() + offset, monotonic=time.monotonic)  # type: ignore[assignment]
    signal.signal(signal.SIGUSR1, step)
    signal.signal(signal.SIGUSR2, step)
