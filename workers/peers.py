"""The other workers of the fleet: who is alive, and who can read a session's state.

Rolling upgrade. Releases whose stages keep their state differently (`schema`) run side by side for a while. A session's
state is of the schema that its last pass wrote, and whoever has another one would have to begin anew in the middle of
an utterance. So it hands the token back while a live peer has that schema: an open session stays with the release that
it began with until the last worker of that release has left. Only then does a session begin anew, once.

Silence says something about a peer only while Redis was there to hear it. After an outage everybody seems silent, so
nobody is judged by it until each has had the time of a lease to be heard again.
"""

import json
from typing import Any

from shared.clock import mono_ms
from shared.redis_client import RedisClients


class Peers:
    """What the heartbeats say about others than `me`; who was silent for `silent_ms` is gone."""

    def __init__(self, clients: RedisClients, me: str, silent_ms: float) -> None:
        self._clients = clients
        self._me = me
        self._silent_ms = silent_ms
        self._judge_from = 0.0

    def unheard(self) -> None:
        """Redis was away just now."""
        self._judge_from = mono_ms() + self._silent_ms

    @property
    def judged(self) -> bool:
        """Whether silence means anything."""
        return mono_ms() >= self._judge_from

    async def live(self, stage: str) -> dict[str, Any]:
        """Heartbeats by worker."""
        reply = await self._clients.run("peers", [self._clients.keys.workers(stage)], [self._silent_ms])
        beats = {name.decode(): json.loads(beat) for name, beat in zip(reply[::2], reply[1::2], strict=True)}
        beats.pop(self._me, None)
        return beats

    async def can_read(self, stage: str, schema: int) -> bool:
        """Whether a peer has, or may have, this schema."""
        beats = await self.live(stage)
        return not self.judged or any(beat.get("schema") == schema for beat in beats.values())
