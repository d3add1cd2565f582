"""How far behind this worker is: what one late token tells, and what a long row of them tells.

A single late token is as likely a dead peer's, and what the dead peer's session says must not depend on its death.
So a worker leaves out what could change a final only when for ten seconds every token it took was late and had waited
since before the one taken last: that is more work than it can do, which no takeover looks like.
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
        self._last = 0.0  # when a token was taken last

    def taken(self, wait_ms: float, now_ms: float) -> Haste:
        """What may be left out of the pass for a token that waited this long. `now_ms` is monotonic."""
        idle = wait_ms < now_ms - self._last
        self._last = now_ms
        if wait_ms <= BEHIND_MS:
            self._since = None
            return Haste.NONE
        self._since = now_ms if self._since is None or idle else self._since
        sustained = now_ms - self._since >= SUSTAINED_MS
        return Haste.FAR_BEHIND if sustained and wait_ms > FAR_BEHIND_MS else Haste.BEHIND
