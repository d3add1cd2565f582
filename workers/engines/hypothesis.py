"""What every search gives back."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Hypothesis:
    tokens: tuple[int, ...]
    # natural logarithm of each token's probability, forced ones included; empty unless asked for
    logprobs: tuple[float, ...] = ()
