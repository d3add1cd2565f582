"""`make soak MINUTES=10`: figures every 10 s, then what grew, and a picture of it. Exit code 1 when something did."""

import asyncio
import sys
from pathlib import Path

from tests.soak.meters import Sample
from tests.soak.plot import MB, draw
from tests.soak.run import Soak
from tests.soak.verdict import growth

_PICTURE = Path("docs/soak.png")


def _say(sample: Sample) -> None:
    memory = "  ".join(f"{name.split(' (')[0]} {rss / MB:.0f}" for name, rss in sample.memory.items())
    print(
        f"{sample.seconds:5.0f} s  {memory} MB  {sample.threads} threads  {sample.files} files  "
        f"Redis {sample.redis_bytes / MB:.1f} MB, {sample.keys} keys  {sample.sessions} sessions over",
        flush=True,
    )


def main(minutes: float, picture: Path) -> int:
    soak = Soak(seconds=minutes * 60, look_s=10, say=_say)
    asyncio.run(soak.run())
    draw(soak.samples, picture)
    for failure in soak.failures:
        print(f"failed: {failure}")
    for found in growth(soak.samples):
        verdict = "flat" if found.flat else "GREW"
        limit = f"(limit {found.limit:.0%})"
        print(
            f"{found.name}: {found.before:,.0f} -> {found.after:,.0f}, {found.share:+.1%} {limit} {verdict}"
        )
    print(f"{soak.done} sessions, {len(soak.failures)} of them not as they should be; see {picture}")
    return 0 if not soak.failures and all(found.flat for found in growth(soak.samples)) else 1


if __name__ == "__main__":
    if len(sys.argv) != 2 or not sys.argv[1].replace(".", "", 1).isdigit() or float(sys.argv[1]) < 1:
        sys.exit("say for how many minutes, at least 1: make soak MINUTES=10")
    sys.exit(main(float(sys.argv[1]), _PICTURE))
