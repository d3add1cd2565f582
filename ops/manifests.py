"""Lists of recordings with what is said in them: tab-separated, no quoting, paths relative to the list."""

import csv
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from shared.errors import BadInput


@dataclass(frozen=True, slots=True)
class Take:
    """What one session says: recordings one after the other, and their words ("" where nobody wrote them down)."""

    name: str
    subset: str
    files: tuple[Path, ...]
    reference: str


def read_manifest(path: Path, *, pattern: str = "*", limit: int | None = None) -> list[Take]:
    """One take per row whose path matches. Raises BadInput, naming the file and what it should look like."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise BadInput(f"cannot read the manifest {path} ({reason}): give the path of a .tsv file") from error
    if not rows or not {"path", "transcript"} <= rows[0].keys():
        raise BadInput(
            f"{path} is no manifest: its first line must name tab-separated columns, `path` and `transcript` among them"
        )
    takes = [_take(path.parent, row) for row in rows if fnmatchcase(row["path"], pattern)][:limit]
    if not takes:
        raise BadInput(f"no path of the {len(rows)} in {path} matches {pattern!r}: try --filter '*'")
    return takes


def continuous(
    takes: Sequence[Take], *, sessions: int, seconds: float, second_of: dict[str, float]
) -> list[Take]:
    """One long take per session, each starting elsewhere in the list and repeating it for at least `seconds`."""
    if not sum(second_of[take.name] for take in takes):
        raise BadInput("--loop needs recordings that hold audio")
    found = []
    for n in range(sessions):
        first = n * len(takes) // sessions
        said: list[Take] = []
        total = 0.0
        for take in itertools.cycle([*takes[first:], *takes[:first]]):
            said.append(take)
            total += second_of[take.name]
            if total >= seconds:
                break
        files = tuple(file for take in said for file in take.files)
        found.append(Take(f"session {n + 1}", "continuous", files, " ".join(take.reference for take in said)))
    return found


def _take(folder: Path, row: dict[str, str]) -> Take:
    where = Path(row["path"])
    subset = where.parts[0] if len(where.parts) > 1 else folder.name
    return Take(row["path"], subset, (folder / where,), row["transcript"] or "")
