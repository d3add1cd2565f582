"""The numbers of gateway/pace_model.py from real speech, and how often a wrong sample rate is told, or a right one called wrong.

`python -m ops.bench.pace` fits to one half of the speakers and tests on the other, both ways, and prints the table of
ops/decisions/0015-sample-rate.md; with `--write` it then writes the model of all speakers. Takes minutes on two cores.
"""

import argparse
import sys
import zlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import soxr
from rich.console import Console
from rich.table import Table

from gateway.pace import RATE, Doubles, Floats, statistics
from gateway.pcm import to_s16le
from gateway.rate_check import WINDOW_S, likely_rate
from ops.bench import sounds
from ops.bench.sounds import Session

PAIRS = ((8, 16), (16, 8), (16, 48), (48, 16), (44.1, 16), (8, 48), (48, 8), (24, 16), (16, 24))
# Announced rightly: wide band, telephone, telephone brought to 16 kHz, less than its band, with noise.
RIGHT = ("16 kHz", "8 kHz", "mu-law 8 kHz", "mu-law at 16 kHz", "half a band", "noisy")
LONGEST_S = 64  # of a session as heard
# What the regression need not tell apart, in octaves.
FARTHEST = 1.6
RIDGE = 3e-3
MODEL_FILE = Path(__file__).parents[2] / "gateway/pace_model.py"


class Window(NamedTuple):
    """A quarter of a minute as a gateway hears it."""

    session: Session
    case: str
    true: float
    announced: float
    samples: Floats

    @property
    def octaves(self) -> float:
        return float(np.log2(self.announced / self.true))


class Found(NamedTuple):
    folder: str
    speaker: str
    speech: bool
    case: str
    octaves: float
    seconds: float
    statistics: Doubles


class Told(NamedTuple):
    speech: bool
    case: str
    true: float
    right: bool
    seconds: float
    speaker: str
    likely: int | None

    @property
    def named(self) -> bool:
        """Whether the rate is told; of 44.1 and 48 kHz either will do."""
        return self.likely is not None and abs(float(np.log2(self.likely / self.true / 1000))) < 0.2


def windows(session: Session) -> Iterator[Window]:
    cases: list[tuple[str, Floats, float, float]] = [(name, *_right(session, name)) for name in RIGHT]
    for true, announced in PAIRS:
        samples = soxr.resample(session.samples, session.rate, true * 1000)
        cases.append((f"{true:g} as {announced:g}", samples, true, announced))
    for name, samples, real, told in cases:
        heard = soxr.resample(samples[: int(LONGEST_S * told * 1000)], told * 1000, RATE)
        size = WINDOW_S * RATE
        for at in range(0, len(heard), size):
            # An end shorter than a window tells nothing in a gateway; here it does for a recording that is nothing else.
            if at + size <= len(heard) or at == 0:
                yield Window(session, name, real, told, heard[at : at + size])


def _right(session: Session, name: str) -> tuple[Floats, float, float]:
    samples, rate = session.samples, session.rate
    if name == "8 kHz":
        return soxr.resample(samples, rate, 8_000), 8, 8
    if name == "mu-law 8 kHz":
        return sounds.companded(soxr.resample(samples, rate, 8_000)), 8, 8
    if name == "mu-law at 16 kHz":
        narrow = sounds.companded(soxr.resample(samples, rate, 8_000))
        return soxr.resample(narrow, 8_000, RATE), 16, 16
    if name == "half a band":
        narrow = soxr.resample(samples, rate, 11_000)
        return soxr.resample(narrow, 11_000, RATE), 16, 16
    wide = soxr.resample(samples, rate, RATE)
    return (sounds.noisy(wide) if name == "noisy" else wide), 16, 16


def measure(session: Session) -> list[Found]:
    found = []
    for window in windows(session):
        result = statistics(window.samples)
        if result is not None:
            seconds = len(window.samples) / RATE
            about = (session.folder, session.speaker, session.speech, window.case)
            found.append(Found(*about, window.octaves, seconds, result))
    return found


def decide(models: Sequence[Doubles], session: Session) -> list[Told]:
    """By the model that was not made from this speaker."""
    model = models[half_of(session.speaker)]
    told = []
    for window in windows(session):
        announced = round(window.announced * 1000)
        likely = likely_rate(to_s16le(window.samples), announced, model=model)
        about = (session.speech, window.case, window.true, window.octaves == 0)
        told.append(Told(*about, len(window.samples) / RATE, session.speaker, likely))
    return told


def half_of(speaker: str) -> int:
    return zlib.crc32(speaker.encode()) % 2


def fit(found: Sequence[Found]) -> Doubles:
    """Ridge regression; small folders of data count for more than their size, speech announced rightly twice."""
    sizes: dict[str, int] = defaultdict(int)
    for each in found:
        sizes[each.folder] += 1
    values = np.array([each.statistics for each in found])
    octaves = np.clip([each.octaves for each in found], -FARTHEST, FARTHEST)
    weight = np.array([(2 if each.octaves == 0 else 1) / sizes[each.folder] ** 0.5 for each in found])
    right = np.array([each.octaves == 0 for each in found])
    mean = np.average(values[right], axis=0, weights=weight[right])
    deviation = np.sqrt(np.average((values[right] - mean) ** 2, axis=0, weights=weight[right]))
    inputs = np.c_[np.clip((values - mean) / deviation, -5, 5), np.ones(len(values))]
    squares = inputs.T @ (inputs * weight[:, None]) + RIDGE * weight.sum() * np.eye(inputs.shape[1])
    weights = np.linalg.solve(squares, inputs.T @ (octaves * weight))
    model: Doubles = np.c_[np.r_[mean, 0], np.r_[deviation, 1], weights]
    return model


def table(told: Sequence[Told], title: str) -> Table:
    made = Table("audio", "announced", "windows", "hours", "told", "right rate named", title=title)
    groups: dict[tuple[str, bool, str], list[Told]] = defaultdict(list)
    for each in told:
        groups["speech" if each.speech else "other", each.right, each.case].append(each)
    for (kind, right, case), group in groups.items():
        if kind == "speech" or right:
            alarms = [each for each in group if each.likely]
            hours = sum(each.seconds for each in group) / 3600
            share = f"{len(alarms)}" if right else f"{len(alarms) / len(group):.1%}"
            named = "" if right else f"{sum(each.named for each in alarms)}/{len(alarms)}"
            made.add_row(kind, case, str(len(group)), f"{hours:.2f}", share, named)
    return made


def write(model: Doubles) -> None:
    rows = "".join(f"        ({', '.join(f'{value:.4g}' for value in row)}),\n" for row in model)
    MODEL_FILE.write_text(
        '"""Written by `python -m ops.bench.pace --write`. Of each statistic: mean and deviation in speech, weight."""\n\n'
        f"import numpy as np\n\nMODEL = np.array(\n    [\n{rows}    ]\n)\n",
        encoding="utf-8",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", nargs="?", type=Path, default=Path("../shared/data"))
    parser.add_argument("--write", action="store_true", help="write gateway/pace_model.py")
    options = parser.parse_args()
    if not options.data.exists():
        sys.exit(f"skipped: the larger data is not in {options.data}; give its folder")
    sessions = [*sounds.recordings(options.data, LONGEST_S), *sounds.synthetic(LONGEST_S)]
    with ProcessPoolExecutor() as pool:
        found = [each for part in pool.map(measure, sessions, chunksize=4) for each in part if each.speech]
        # Each half is tested by the model of the other.
        models = [fit([each for each in found if half_of(each.speaker) != half]) for half in (0, 1)]
        told = [each for part in pool.map(partial(decide, models), sessions, chunksize=4) for each in part]
    console = Console()
    console.print(table([each for each in told if each.seconds >= WINDOW_S], "whole windows"))
    console.print(table([each for each in told if each.seconds < WINDOW_S], "recordings that are shorter"))
    for each in told:
        if each.likely and each.right:
            console.print(f"false alarm: {each}")
    if options.write:
        write(fit(found))


if __name__ == "__main__":
    main()
