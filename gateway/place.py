"""Where a client is in its session: what it must know to go on after it was cut off."""

from collections.abc import Iterable
from math import gcd
from typing import NamedTuple

SAMPLE_RATE = 16_000
# The resampling filters look 0.12 s around at most (8 kHz); audio that warms them up again is heard twice by none.
_WARM_UP_S = 0.25


class Place(NamedTuple):
    """After the newest entry of the audio stream; stored beside it, so both are lost or kept together."""

    samples: int = 0  # of the session, at 16 kHz, gaps counted
    flushes: int = 0  # flush marks so far
    # Where the resampler began afresh: after the last flush, in the client's samples and in ours.
    base_theirs: int = 0
    base_ours: int = 0
    container: int = 0  # 1: all of it is sent again, for its bytes can't be counted in samples

    @classmethod
    def read(cls, raw: bytes) -> "Place":
        return cls(*map(int, raw.split(b":"))) if raw else cls()

    def dump(self) -> str:
        # Without `container` as gateways before this field read it.
        return ":".join(map(str, self if self.container else self[:4]))


class Restart(NamedTuple):
    """How to take up audio of another rate again, so that the result is what it would have been without the cut.

    Of a container everything comes again, of which the decoder leaves out what lies before the last flush.
    """

    sample: int  # of the client's audio: send from here
    skip: int  # samples at 16 kHz that the decoder gives for audio before the place


def restart_at(place: Place, rate: int) -> Restart:
    """Where a client that sends at `rate` Hz goes on after `place`.

    From a point on both grids (44,100 Hz: every 441 samples are 160 of ours) and early enough for the filter.
    """
    since = place.samples - place.base_ours
    if place.container:
        return Restart(0, since)
    if rate == SAMPLE_RATE:
        return Restart(place.base_theirs + since, 0)
    common = gcd(rate, SAMPLE_RATE)
    theirs, ours = rate // common, SAMPLE_RATE // common
    steps = max(0, since - int(_WARM_UP_S * SAMPLE_RATE)) // ours
    return Restart(place.base_theirs + steps * theirs, since - steps * ours)


def restart_of(places: Iterable[Place], rate: int) -> tuple[int, Place]:
    """The same for channels that were cut off at different places: from the one that is furthest behind.

    Returns the client's sample to send from, and the place that the decoder's output begins at, counted like theirs.
    """
    behind = min(places, key=lambda place: (place.samples, place.flushes))
    again = restart_at(behind, rate)
    return again.sample, behind._replace(samples=behind.samples - again.skip)
