"""Run a fleet until a signal: the first drains it, the second ends it at once."""

import asyncio
import signal
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

from ops.fleet import Fleet, tell

_Signals = asyncio.Queue[None]


def serve(fleet: Fleet) -> int:
    """Start and serve; return the exit code: 0 after a drain, 130 when it was cut short.

    Raises what Fleet.start and Fleet.wait raise, with everything stopped.
    """
    return asyncio.run(_serve(fleet))


async def _serve(fleet: Fleet) -> int:
    signals: _Signals = asyncio.Queue()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, signals.put_nowait, None)
    if await _interrupted(fleet.start(), signals):
        return 130
    try:
        await _interrupted(fleet.wait(), signals)
    finally:
        tell("stopping: sessions finish first (once more to stop now) …")
        cut_short = await _interrupted(fleet.stop(), signals)
        if cut_short:
            await fleet.stop(deadline_s=0)
    tell("stopped")
    return 130 if cut_short else 0


async def _interrupted(work: Coroutine[Any, Any, None], signals: _Signals) -> bool:
    """Run `work` until it is done, or cancel it at a signal; tell whether one came."""
    task, signalled = asyncio.create_task(work), asyncio.create_task(signals.get())
    await asyncio.wait({task, signalled}, return_when=asyncio.FIRST_COMPLETED)
    signalled.cancel()
    if task.done():
        task.result()
        return False
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    return True
