"""Ctrl-C and SIGTERM, for commands with something to finish."""

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def at_interrupt(act: Callable[[], object]) -> Iterator[None]:
    """Call `act` at the first of them; the second ends the process as it would any other."""
    loop = asyncio.get_running_loop()

    def forget() -> None:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)

    def first() -> None:
        forget()
        act()

    for number in _SIGNALS:
        loop.add_signal_handler(number, first)
    try:
        yield
    finally:
        forget()
