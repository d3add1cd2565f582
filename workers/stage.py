"""The shape of work: a stage is a pure function of (state, inputs).

Time is audio time in samples, never the clock; nothing here or in workers/stages awaits, logs or knows Redis.
How inputs are grouped into steps must not change what is finally said: workers take all that is pending.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Generic, Protocol, TypeVar

from shared.protocol import SessionOptions
from workers.stages.codec import Position

S = TypeVar("S")
I_contra = TypeVar("I_contra", contravariant=True)
O_co = TypeVar("O_co", covariant=True)


class Haste(IntEnum):
    """How far behind the worker is, and so what it may leave out."""

    NONE = 0
    BEHIND = 1  # what is only shown, and shown again by the next pass
    FAR_BEHIND = 2  # everything but what is said for good


@dataclass(frozen=True, slots=True)
class Step(Generic[S, O_co]):
    """What one step gives back."""

    state: S
    outputs: Sequence[O_co] = ()
    # How many of the newest inputs (past ones included) later steps still need to see.
    needs: int = 0


class Stage(Protocol[S, I_contra, O_co]):
    """One stage. `schema` changes whenever the meaning of the state does."""

    name: str
    schema: int

    def initial(self, at: Position) -> S:
        """The state of a session that starts at this position: (0, 0) but for rolling upgrades."""
        ...

    def step(
        self,
        state: S,
        inputs: Sequence[I_contra],
        past: Sequence[I_contra],
        options: SessionOptions,
        haste: Haste = Haste.NONE,
    ) -> Step[S, O_co]:
        """Process `inputs`; `past` are the already processed inputs kept because an earlier step needs them."""
        ...

    def dump(self, state: S) -> bytes: ...

    def load(self, blob: bytes) -> S | Position:
        """Read a dumped state; only its position when it was written by another schema."""
        ...
