"""What each fault's run came to: one JSON file per fault. `python -m tests.chaos.report` puts them into docs/reliability.md."""

import json
import os
import re
from pathlib import Path
from typing import Any

from tests.chaos.faults import FAULTS
from tests.chaos.scene import Scene

ROOT = Path(__file__).parents[2]
RESULTS = Path(os.environ.get("CHAOS_RESULTS", ROOT / ".chaos"))
PAGE = ROOT / "docs/reliability.md"
_TABLE = re.compile(r"(?<=<!-- table -->\n).*(?=<!-- /table -->)", re.DOTALL)


def note(scene: Scene) -> dict[str, Any]:
    """Write down what happened, and return it."""
    heard = [talker for talker in scene.talkers if talker.heard]
    found = {
        "fault": scene.fault.name,
        "seed": scene.seed,
        "injections": scene.injections,
        "sessions": len(scene.talkers),
        "chunks": sum(talker.talk.chunks for talker in scene.talkers),
        "chunks_lost": sum(talker.chunks_lost() for talker in heard),
        "events": sum(len(talker.events) for talker in heard),
        "events_duplicated": sum(talker.duplicates() for talker in heard),
        "longest_stall_s": round(max(talker.longest_stall() for talker in heard), 2),
    }
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{scene.fault.slug}.json").write_text(json.dumps(found, indent=1))
    return found


def table() -> str:
    """Markdown of all rows. Raises FileNotFoundError when a fault has not been run."""
    lines = [
        "| fault | times | sessions | chunks | chunks lost | events | duplicated | longest stall | test |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for fault in FAULTS:
        found = json.loads((RESULTS / f"{fault.slug}.json").read_text())
        counts = ["injections", "sessions", "chunks", "chunks_lost", "events", "events_duplicated"]
        cells = [fault.name, *(f"{found[name]:,}" for name in counts), f"{found['longest_stall_s']:.2f} s"]
        lines.append(f"| {' | '.join(cells)} | `test_survives[{fault.slug}]` |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(_TABLE.sub(lambda _: table(), PAGE.read_text(encoding="utf-8")), encoding="utf-8")
