"""Folders that only this user can read and that nobody has to clean up.

The owner holds a lock on its folder, which the kernel lets go at its death, however it dies (a pid in the name would
say "dead" for the living in another container that shares /tmp). `sweep` removes the folders of the dead.
"""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

_PREFIX = "scribe-redis-"
# sun_path holds 104 bytes on macOS, 108 on Linux, the closing zero included
_LONGEST_SOCKET = 103


class Locked(Exception):
    """Another process holds the folder."""


def lock(folder: Path) -> int:
    """Lock the folder until the descriptor returned is closed. Raises Locked."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        raise Locked(str(folder)) from error
    return descriptor


def make(longest_name: str) -> Path:
    """Make a folder of mode 700 in which `longest_name` still fits a socket's address."""
    for base in (tempfile.gettempdir(), "/tmp"):  # noqa: S108 - mkdtemp makes the name unguessable
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=base))
        if len(os.fsencode(folder / longest_name)) <= _LONGEST_SOCKET:
            return folder
        folder.rmdir()
    raise AssertionError("a name in the last base is short enough")


def sweep(shut_down: Callable[[Path], None]) -> None:
    """Remove the folders whose owners died, after `shut_down` has ended what still uses them."""
    for base in {Path(tempfile.gettempdir()), Path("/tmp")}:  # noqa: S108
        for folder in base.glob(f"{_PREFIX}*"):
            with suppress(OSError, Locked):
                # an empty one may be so new that its owner has not locked it yet
                if folder.stat().st_uid != os.getuid() or not any(folder.iterdir()):
                    continue
                descriptor = lock(folder)
                shut_down(folder)
                shutil.rmtree(folder, ignore_errors=True)
                os.close(descriptor)
