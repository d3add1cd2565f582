"""Start a command so that it dies with the process that started it, however that ends, SIGKILL included.

Linux only, through PR_SET_PDEATHSIG. It is set by a shim that then execs the command: code between fork and exec
(preexec_fn) can deadlock in a process with threads. The kernel ties it to the *thread* that forked, so start
tethered commands from the main thread or from one that lives as long. On macOS an orphan stays until the next
start of an embedded server sweeps it (ops/private.py), or its Redis is gone.
"""

import ctypes
import os
import signal
import sys
from collections.abc import Sequence

PR_SET_PDEATHSIG = 1


def tethered(command: Sequence[str]) -> list[str]:
    """Give the command line that runs `command` tied to this process."""
    if sys.platform != "linux":
        return list(command)
    # -I -S: no site-packages, 12 ms instead of 40 until the exec
    return [sys.executable, "-I", "-S", __file__, str(os.getpid()), *command]


def _main(parent: int, command: list[str]) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        sys.exit(f"prctl(PR_SET_PDEATHSIG): {os.strerror(ctypes.get_errno())}")
    if os.getppid() != parent:  # it died before prctl: its signal will never come
        sys.exit(1)
    os.execvp(command[0], command)  # noqa: S606


if __name__ == "__main__":
    _main(int(sys.argv[1]), sys.argv[2:])
