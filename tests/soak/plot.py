"""Samples as a picture."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from tests.soak.meters import Sample

mpl.rcParams |= {"svg.hashsalt": "soak", "font.size": 9, "axes.spines.top": False, "axes.spines.right": False}
MB = 1e6


def draw(samples: Sequence[Sample], path: Path) -> None:
    """Four panels over minutes, each from zero: a slope that matters is one to see."""
    minutes = [sample.seconds / 60 for sample in samples]
    figure = Figure(figsize=(9, 6), layout="constrained")
    panels = figure.subplots(2, 2, sharex=True)
    (memory, redis), (counts, keys) = panels
    for name in samples[-1].memory:
        memory.plot(minutes, [sample.memory[name] / MB for sample in samples], label=name.split(" (")[0])
    memory.set_title("memory of each process (RSS, MB)", loc="left")
    redis.plot(minutes, [sample.redis_bytes / MB for sample in samples], color="tab:red")
    redis.set_title("memory of Redis (MB)", loc="left")
    counts.plot(minutes, [sample.files for sample in samples], label="open files")
    counts.plot(minutes, [sample.threads for sample in samples], label="threads")
    counts.set_title("open files and threads of all processes", loc="left")
    keys.plot(minutes, [sample.keys for sample in samples], color="tab:red")
    keys.set_title("keys in Redis", loc="left")
    for panel in panels.flat:
        panel.set_ylim(bottom=0)
        panel.axvspan(0, minutes[2 * len(minutes) // 5 - 1], color="0.93", label="warm-up")
        panel.legend(frameon=False, loc="center right")
    for panel in panels[1]:
        panel.set_xlabel("minutes")
    figure.suptitle(f"{samples[-1].sessions} sessions, ten at a time", x=0.01, ha="left")
    figure.savefig(path, dpi=110)
