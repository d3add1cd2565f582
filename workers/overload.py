"""How far behind this worker is: what one late token tells, and what a long row of them tells.

A single late token is as likely a dead peer's, and what the dead peer's session says must not depend on its death.
So a worker leaves out what could change a final only when every token it took for ten seconds was late: that is
more work than it can do, which no takeover looks like.
"""

from workers.stage import Haste

# Longer than an ear notices.
BEHIND_MS = 100
# So late, for so long, that settling text early has no use any more.
FAR_BEHIND_MS = 2000
SUSTAINED_MS = 10_000


class Overload:
    """Told of every token taken, in order."""

    def __init__(self) -> None:
        self._since: float | None = None

    def taken(self, wait_ms: float, now_ms: float) -> Haste:
        """What may be left out of the pass for a token that waited this long. `now_ms` is monotonic."""
        if wait_ms <= BEHIND_MS:
            self._since = None
            return Haste.NONE
        self._since = now_ms if self._since is None else self._since
        sustained = now_ms - self._since >= SUSTAINED_MS
        return Haste.FAR_BEHIND if sustained and wait_ms > FAR_BEHIND_MS else Haste.BEHIND
