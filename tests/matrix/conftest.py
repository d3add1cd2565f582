"""Every test of this folder runs on every kind of Redis that can be had here; each is started when first asked for."""

import secrets
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import pytest

from shared.settings import RedisSettings
from tests.e2e.conftest import auth_settings, fleet, gateway_settings, idle_fleet, limit_settings  # noqa: F401 - fixtures
from tests.rigs import ClusterRig, SentinelRig, Server
from tests.servers import ALL, programs, version

OTHERS = ("unix socket", "acl user", "tls", "sentinel", "cluster", "cluster, sharded channels")
# What the user of `acl user` may do. Tests flush; gateways and workers never do (ops/redis has their rights).
RIGHTS = "on >s3cret:/ resetkeys ~t* resetchannels &t* +@all -@admin -@dangerous +info +flushall"
# What a test needs that a place has not.
ELSEWHERE = {
    "test_sessions_are_served_in_the_order_their_work_came_however_many_share_a_partition": "cluster",  # test_cluster.py
    "test_a_worker_that_gets_tokens_of_several_streams_at_once_keeps_one": "cluster",  # it gets none
    "test_a_commit_moves_the_state_feeds_the_next_stage_and_publishes_in_order": "cluster, sharded",  # SUBSCRIBEs
}


@pytest.fixture(params=[pytest.param(name, marks=pytest.mark.xdist_group(name)) for name in (*ALL, *OTHERS)])
def place(request: pytest.FixtureRequest, places: Callable[[str], str]) -> str:
    """Name of where the test runs."""
    if request.param.startswith(ELSEWHERE.get(request.function.__name__, "nowhere")):
        pytest.skip("not what this place does")
    places(request.param)
    return request.param


@pytest.fixture
def redis_settings(place: str, places: Callable[[str], str]) -> RedisSettings:
    sharded = place.endswith("sharded channels")
    prefix = f"t{secrets.token_hex(4)}"
    return RedisSettings(url=places(place), prefix=prefix, partitions=4, sharded_pubsub=sharded)


@pytest.fixture(scope="session")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], str]]:
    """Name to URL; starts what has not been started. Skips what can't be."""
    urls: dict[str, str] = {}
    with ExitStack() as running:

        def url_of(name: str) -> str:
            if name not in urls:
                urls[name] = _start(name, tmp_path_factory.mktemp("place"), running.enter_context)
            return urls[name]

        yield url_of


def _start(name: str, folder: Path, enter: Callable[[AbstractContextManager], object]) -> str:
    if name == "sentinel":
        rig = SentinelRig(replicas=1, safe=False)
    elif name.startswith("cluster"):
        rig = ClusterRig()
    elif name == "tls":
        return _tls(folder, enter)
    else:
        program = programs().get(name) if name in ALL else None
        if name in ALL and program is None:
            pytest.skip(f"{name} is not here: make servers, or apt-get install redis-server")
        path = str(folder / "redis.sock")
        rig = Server(program, {"unixsocket": path} if name == "unix socket" else None)
    enter(rig)
    if name == "unix socket":
        return f"unix://{rig.options['unixsocket']}?db=0"
    if name == "acl user":
        rig.tell("ACL", "SETUSER", "scribe", *RIGHTS.split())
        return f"redis://scribe:s3cret%3A%2F@127.0.0.1:{rig.port}"
    return rig.url


def _tls(folder: Path, enter: Callable[[AbstractContextManager], object]) -> str:
    """Server and client each show a certificate of the same authority."""
    key, certificate = folder / "key.pem", folder / "cert.pem"
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not here, which makes the certificate")
    words = (
        "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=DNS:localhost"
    )
    command = ["openssl", *words.split(), "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)
    options = {
        "tls-cert-file": str(certificate),
        "tls-key-file": str(key),
        "tls-ca-cert-file": str(certificate),
    }
    for program in programs().values():
        server = Server(program, options)
        server.options |= {"port": "0", "tls-port": str(server.port)}
        if _has_tls(program):
            enter(server)
            files = f"ssl_ca_certs={certificate}&ssl_certfile={certificate}&ssl_keyfile={key}"
            return f"rediss://localhost:{server.port}/0?{files}"
        server.stop()
    pytest.skip(f"none of {', '.join(f'{n} {version(p)}' for n, p in programs().items())} has TLS")


def _has_tls(program: Path) -> bool:
    asked = subprocess.run(
        [program, "--port", "0", "--tls-port", "1"], check=False, capture_output=True, timeout=10
    )
    return b"Failed to configure TLS" in asked.stdout + asked.stderr  # it has no certificate
