"""One supervised process: started tied to us, started again when it dies, given up when it keeps dying at once."""

import asyncio
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from ops.tether import tethered
from shared.clock import mono_ms
from shared.errors import StageFailed

# A model loads in 1 to 3 s; whoever lived for this long has started properly.
_SETTLED_MS = 10_000
_QUICK_DEATHS = 4
# the descriptor: a progress bar may have replaced sys.stderr
_STDERR = 2

Say = Callable[[str], None]


class Patience:
    """Decides how long to wait before the next start: 0.5 s, doubling; anew after a life of 10 s."""

    def __init__(self, name: str, say: Say) -> None:
        self._name = name
        self._say = say
        self._quick = 0
        self._born_ms = 0.0

    def born(self) -> None:
        self._born_ms = mono_ms()

    def after_death(self, how: str) -> float:
        """Seconds to wait. Raises StageFailed after the fourth quick death in a row."""
        lived_ms = mono_ms() - self._born_ms
        self._quick = self._quick + 1 if lived_ms < _SETTLED_MS else 1
        if self._quick >= _QUICK_DEATHS:
            raise StageFailed(
                f"{self._name} died {self._quick} times in a row soon after its start (last: {how}). Its own "
                "messages are above; `streamscribe doctor` checks the usual causes"
            )
        pause_s: float = 0.5 * 2 ** (self._quick - 1)
        self._say(
            f"{self._name} died after {lived_ms / 1000:.1f} s ({how}): starting it again in {pause_s} s"
        )
        return pause_s


class Child:
    """`run` keeps the process alive until `quiet`; start it in a task of the main thread (ops/tether.py)."""

    def __init__(self, name: str, command: Sequence[str], environment: Mapping[str, str], say: Say) -> None:
        self.name = name
        self._command = command
        self._environment = environment
        self._say = say
        self._patience = Patience(name, say)
        self._quiet = asyncio.Event()
        self._process: asyncio.subprocess.Process | None = None

    async def run(self) -> None:
        """Return once it has ended after `quiet`. Raises StageFailed when it keeps dying."""
        while not self._quiet.is_set():
            await self._spawn()
            assert self._process is not None
            code = await self._process.wait()
            if not self._quiet.is_set():
                pause_s = self._patience.after_death(_how(code))
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._quiet.wait(), pause_s)

    def quiet(self) -> None:
        """Ask it to finish what it has in hand and exit (SIGTERM); it is not started again."""
        if not self._quiet.is_set():
            self._quiet.set()
            self._signal(signal.SIGTERM)

    async def stop(self, deadline_s: float) -> None:
        """`quiet`, then wait; by force after `deadline_s`."""
        self.quiet()
        if self._process is None:
            return
        try:
            await asyncio.wait_for(self._process.wait(), deadline_s)
        except TimeoutError:
            self._say(f"{self.name} did not finish in {deadline_s:.0f} s: killed")
            self.kill()
            await self._process.wait()

    def kill(self) -> None:
        self._quiet.set()
        self._signal(signal.SIGKILL)

    async def _spawn(self) -> None:
        self._patience.born()
        self._process = await asyncio.create_subprocess_exec(
            *tethered(self._command),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=_STDERR,  # standard output belongs to the command that runs the fleet
            env=self._environment,
            start_new_session=True,  # the terminal's Ctrl-C is for the supervisor, which drains in order
        )
        if self._quiet.is_set():  # asked while it was being started
            self._signal(signal.SIGTERM)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.send_signal(number)


def _how(code: int) -> str:
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
