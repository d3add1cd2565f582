"""The worker's soft cache: states and kept-back inputs of sessions it has just worked on. Never truth.

An entry counts only while its version is the one in Redis; without it a pass reads everything again.
"""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Hot:
    version: str  # token and seq of the commit that wrote this state
    state: Any
    inputs: tuple[tuple[int, Any], ...]  # (seq, input) kept back


class HotPool:
    def __init__(self, sessions: int) -> None:
        self._limit = sessions
        self._entries: OrderedDict[tuple[str, str], Hot] = OrderedDict()

    def get(self, session: str, stage: str) -> Hot | None:
        hot = self._entries.get((session, stage))
        if hot:
            self._entries.move_to_end((session, stage))
        return hot

    def put(self, session: str, stage: str, hot: Hot) -> None:
        self._entries[session, stage] = hot
        self._entries.move_to_end((session, stage))
        while len(self._entries) > self._limit:
            self._entries.popitem(last=False)

    def forget(self, session: str, stage: str) -> None:
        self._entries.pop((session, stage), None)

    def __len__(self) -> int:
        return len(self._entries)
