"""Ending asyncio tasks for certain."""

import asyncio
from collections.abc import Iterable
from typing import Any

_AGAIN_S = 0.1


async def cancel(tasks: Iterable[asyncio.Task[Any] | None]) -> None:
    """Cancel and wait; what they failed with is not raised.

    More than once: redis-py on Python 3.11 swallows one in seven cancellations (asyncio.wait_for), and a loop goes on.
    """
    every = [task for task in tasks if task]
    pending = {task for task in every if not task.done()}
    while pending:
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=_AGAIN_S)
    for task in every:
        if not task.cancelled():
            task.exception()  # else asyncio reports that nobody has asked for it
