"""Redis to be cruel to: one server, one with replicas and Sentinels, one Cluster.

    with SentinelRig() as rig:            # or Server(), ClusterRig()
        connect(RedisSettings(url=rig.url))
        rig.failover()

Loopback only, one folder each, gone afterwards, and dead with the test's process (ops/tether.py). Methods block and
may be called by `asyncio.to_thread`, but for those that start processes (`__enter__`, `Server.start`, `ClusterRig.add`):
a server dies with the thread that started it.
"""

import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Self

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from ops.embedded import wheel_server
from ops.tether import tethered

SERVICE = "scribe"
SLOTS = 16384


def free_port() -> int:
    """Below the range that the kernel gives to outgoing connections, as is the Cluster bus 10,000 above it."""
    while True:
        port = random.randrange(11_000, 20_000)
        with suppress(OSError):
            for number in (port, port + 10_000):
                socket.create_server(("127.0.0.1", number)).close()
            return port


def wait_for(true: Callable[[], object], within_s: float = 20) -> None:
    """Poll; a server that does not answer yet counts as no."""
    end = time.monotonic() + within_s
    while True:
        with suppress(redis.RedisError, OSError):
            if true():
                return
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)


class Server:
    """One server process. After `kill`, `start` begins again at the same address, with what its folder holds."""

    def __init__(
        self, program: Path | None = None, options: Mapping[str, str] | None = None, *, sentinel: str = ""
    ) -> None:
        self.port = free_port()
        self.folder = Path(tempfile.mkdtemp(prefix="rig-"))
        self.program = program or wheel_server()
        self.options = {"port": str(self.port), "bind": "127.0.0.1", "dir": str(self.folder)}
        self.options |= {"loglevel": "notice", "logfile": str(self.folder / "log")}
        self.options |= {} if sentinel else {"save": "", "repl-diskless-sync-delay": "0"}
        self.options |= options or {}
        self._sentinel = sentinel
        self._process: subprocess.Popen[bytes] | None = None
        self._admin: redis.Redis | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def address(self) -> tuple[str, int]:
        return "127.0.0.1", self.port

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> Self:
        command = [str(self.program)]
        if self._sentinel:
            config = self.folder / "sentinel.conf"
            if not config.exists():
                lines = [f"{name} {value}" for name, value in self.options.items()]
                config.write_text("\n".join([*lines, self._sentinel]) + "\n")
            command += [str(config), "--sentinel"]
        else:
            command += [word for name, value in self.options.items() for word in (f"--{name}", value)]
        self._process = subprocess.Popen(
            tethered(command), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True
        )
        wait_for(lambda: self.tell("PING"))
        return self

    def tell(self, *command: Any) -> Any:
        """Send one command as administrator, without retry. Returns what the server said, unparsed."""
        if self._admin is None:
            self._admin = redis.Redis(connection_pool=self._pool(), retry=Retry(NoBackoff(), 0))
            self._admin.response_callbacks.clear()
        return self._admin.execute_command(*command)

    def kill(self) -> None:
        """SIGKILL."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def pause(self) -> None:
        os.kill(self._pid(), signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self._pid(), signal.SIGCONT)

    def stop(self) -> None:
        if self._process is not None:
            self.kill()
        if self._admin is not None:
            self._admin.close()
            self._admin.connection_pool.disconnect()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def _pool(self) -> redis.ConnectionPool:
        common: dict[str, Any] = {"protocol": 2, "socket_timeout": 5, "retry": Retry(NoBackoff(), 0)}
        if path := self.options.get("unixsocket"):
            return redis.ConnectionPool(
                connection_class=redis.UnixDomainSocketConnection, path=path, **common
            )
        if port := self.options.get("tls-port"):
            certificates = {"ssl_ca_certs": self.options["tls-ca-cert-file"]}
            certificates |= {"ssl_certfile": self.options["tls-cert-file"]}
            certificates |= {"ssl_keyfile": self.options["tls-key-file"]}
            return redis.ConnectionPool(
                connection_class=redis.SSLConnection,
                host="localhost",
                port=int(port),
                **certificates,
                **common,
            )
        return redis.ConnectionPool(host="127.0.0.1", port=self.port, **common)


class SentinelRig:
    """A master, replicas and three Sentinels that agree within a second (down-after 1000 ms).

    With `safe` no write is acknowledged that is on one server only (min-replicas-to-write 1), which needs two
    replicas: after a failover the new master must have one.
    """

    def __init__(self, *, replicas: int = 2, safe: bool = True, program: Path | None = None) -> None:
        options = {"min-replicas-to-write": "1", "min-replicas-max-lag": "3"} if safe else {}
        self.servers = [Server(program, options) for _ in range(1 + replicas)]
        first = self.servers[0]
        for server in self.servers[1:]:
            server.options["replicaof"] = f"127.0.0.1 {first.port}"
        lines = [
            f"sentinel monitor {SERVICE} 127.0.0.1 {first.port} 2",
            f"sentinel down-after-milliseconds {SERVICE} 1000",
            f"sentinel failover-timeout {SERVICE} 5000",
        ]
        self.sentinels = [Server(program, sentinel="\n".join(lines)) for _ in range(3)]
        self._stack = ExitStack()

    @property
    def url(self) -> str:
        hosts = ",".join(f"127.0.0.1:{sentinel.port}" for sentinel in self.sentinels)
        return f"redis+sentinel://{hosts}/{SERVICE}/0"

    @property
    def master(self) -> Server:
        """Whom most Sentinels call so."""
        asked = [s.tell("SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE) for s in self.sentinels]
        ports = [int(address[1]) for address in asked]
        port = max(ports, key=ports.count)
        return next(server for server in self.servers if server.port == port)

    def failover(self, *, coordinated: bool = False) -> None:
        """Planned: returns when the Sentinels name another master. Coordinated, Valkey 9 and later: without loss."""
        before = self.master
        self.sentinels[0].tell("SENTINEL", "FAILOVER", SERVICE, *["COORDINATED"] * coordinated)
        wait_for(lambda: self.master is not before)

    def kill_master(self) -> Server:
        """SIGKILL the master; returns it at once. `start` brings it back, as a replica."""
        victim = self.master
        victim.kill()
        return victim

    def __enter__(self) -> Self:
        try:
            for server in self.servers:
                self._stack.enter_context(server)
            replicas = self.servers[1:]
            wait_for(lambda: all("master_link_status:up" in _info(server) for server in replicas))
            for sentinel in self.sentinels:
                self._stack.enter_context(sentinel)
            wait_for(self._formed)
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _formed(self) -> bool:
        for sentinel in self.sentinels:
            state = _pairs(sentinel.tell("SENTINEL", "MASTER", SERVICE))
            if int(state["num-other-sentinels"]) < 2 or int(state["num-slaves"]) < len(self.servers) - 1:
                return False
        return True


class ClusterRig:
    """Primaries with an even share of the slots, one replica for each, node time-out 2 s."""

    def __init__(
        self, *, primaries: int = 3, replicas: int = 1, program: Path | None = None, **options: str
    ) -> None:
        self._program = program
        self._options = {"cluster-enabled": "yes", "cluster-node-timeout": "2000"} | options
        # The first primaries are those of the start; who is one later, only the Cluster knows.
        self.servers = [self._server() for _ in range(primaries * (1 + replicas))]
        self._primaries = primaries
        self._stack = ExitStack()

    @property
    def url(self) -> str:
        return "redis+cluster://" + ",".join(f"127.0.0.1:{server.port}" for server in self.servers[:3])

    def primary_of(self, slot: int) -> Server:
        """Who serves the slot (of a key: `slot_of`), as the living servers see it."""
        for server in self._living():
            for first, last, (_, port, *_), *_ in server.tell("CLUSTER", "SLOTS"):
                if first <= slot <= last:
                    return self._at(port)
        raise AssertionError(f"nobody serves slot {slot}")

    def slot_of(self, key: str) -> int:
        return int(self._living()[0].tell("CLUSTER", "KEYSLOT", key))

    def kill_primary(self, slot: int) -> Server:
        """SIGKILL who serves the slot; returns it at once. `start` brings it back, as a replica."""
        victim = self.primary_of(slot)
        victim.kill()
        return victim

    def failover(self, slot: int) -> None:
        """Planned: the replica of who serves the slot takes over without loss; returns when it has."""
        before = self.primary_of(slot)
        name = before.tell("CLUSTER", "MYID").decode()
        line = before.tell("CLUSTER", "REPLICAS", name)[0].decode()  # id host:port@bus …
        port = int(line.split()[1].split("@")[0].rsplit(":", 1)[1])
        self._at(port).tell("CLUSTER", "FAILOVER")
        wait_for(lambda: self.primary_of(slot).port == port)

    def move_slot(self, slot: int) -> Server:
        """Move one slot with all its keys to another primary, key by key, as `redis-cli --cluster reshard` does."""
        source = self.primary_of(slot)
        target = next(server for server in self.primaries() if server is not source)
        to = target.tell("CLUSTER", "MYID").decode()
        target.tell("CLUSTER", "SETSLOT", slot, "IMPORTING", source.tell("CLUSTER", "MYID").decode())
        source.tell("CLUSTER", "SETSLOT", slot, "MIGRATING", to)
        while keys := source.tell("CLUSTER", "GETKEYSINSLOT", slot, 10):
            source.tell("MIGRATE", "127.0.0.1", target.port, "", 0, 5000, "KEYS", *keys)
        for server in (target, source, *self.primaries()):
            server.tell("CLUSTER", "SETSLOT", slot, "NODE", to)
        return target

    def primaries(self) -> list[Server]:
        """Living servers that serve slots."""
        shares = self._living()[0].tell("CLUSTER", "SLOTS")
        found = [self._at(share[2][1]) for share in shares]
        return [server for server in self.servers if server in found and server.running]

    def wait(self) -> None:
        """Until all living servers see all slots served and their replicas linked."""
        wait_for(lambda: all(self._whole(server) for server in self._living()))

    def __enter__(self) -> Self:
        try:
            for server in self.servers:
                self._stack.enter_context(server)
            self._form()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _server(self) -> Server:
        server = Server(self._program, self._options)
        server.options["cluster-config-file"] = str(server.folder / "nodes.conf")
        return server

    def _form(self) -> None:
        share = SLOTS / self._primaries
        for i, server in enumerate(self.servers):
            server.tell("CLUSTER", "SET-CONFIG-EPOCH", i + 1)
            if i < self._primaries:
                server.tell("CLUSTER", "ADDSLOTS", *range(round(i * share), round((i + 1) * share)))
            server.tell("CLUSTER", "MEET", *self.servers[0].address)
        wait_for(lambda: all(self._knows_all(server) for server in self.servers))
        for i, server in enumerate(self.servers[self._primaries :]):
            master = self.servers[i % self._primaries].tell("CLUSTER", "MYID").decode()
            server.tell("CLUSTER", "REPLICATE", master)
        self.wait()

    def _knows_all(self, server: Server) -> bool:
        return f"cluster_known_nodes:{len(self.servers)}\\r" in str(server.tell("CLUSTER", "INFO"))

    def _whole(self, server: Server) -> bool:
        replicas = len(self.servers) > self._primaries
        slots = server.tell("CLUSTER", "SLOTS")
        linked = "role:master" in _info(server) or "master_link_status:up" in _info(server)
        seen = not replicas or sum(len(entry) - 3 for entry in slots) > 0
        return "cluster_state:ok" in str(server.tell("CLUSTER", "INFO")) and linked and seen

    def _living(self) -> Sequence[Server]:
        return [server for server in self.servers if server.running]

    def _at(self, port: int) -> Server:
        return next(server for server in self.servers if server.port == port)


def _info(server: Server) -> str:
    return str(server.tell("INFO", "replication"))


def _pairs(reply: Sequence[bytes]) -> dict[str, str]:
    words = [word.decode() for word in reply]
    return dict(zip(words[::2], words[1::2], strict=True))
