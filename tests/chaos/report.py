"""What each fault's run came to: one JSON file per fault, and the table made of them."""

import json
import os
from pathlib import Path
from typing import Any

from tests.chaos.scene import Scene

RESULTS = Path(os.environ.get("CHAOS_RESULTS", Path(__file__).parents[2] / ".chaos"))


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
