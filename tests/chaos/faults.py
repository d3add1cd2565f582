"""The table of faults: one line each, and what each does."""

import asyncio
import json
import signal
from contextlib import suppress
from functools import partial

from websockets.asyncio.client import connect

from ops.readiness import Group
from tests.chaos import checks
from tests.chaos.scene import Fault, Scene
from tests.chaos.talker import Talk, Talker
from tests.conftest import wait_until
from tests.rigs import ClusterRig, SentinelRig, Server

DURABLE = partial(Server, options={"appendonly": "yes", "appendfsync": "everysec"})
LEASE_S = 2.0  # the default
SPLIT = (Group("frontend", 1), Group("acoustic+decoder", 2))


async def nothing(_scene: Scene) -> None:
    """For comparison."""


async def kill_a_worker(scene: Scene) -> None:
    scene.fleet.some_worker().send(signal.SIGKILL)
    scene.injections += 1


async def kill_an_owner(scene: Scene) -> None:
    """A worker that holds a token at that moment: stopped before it is asked, so that it can't hand it on meanwhile."""
    while not scene.over.is_set():
        for worker in [worker for worker in scene.fleet.workers if worker.alive]:
            worker.send(signal.SIGSTOP)
            if await scene.holds_a_token(worker.popen.pid):
                worker.send(signal.SIGKILL)
                scene.injections += 1
                return
            worker.send(signal.SIGCONT)
        await asyncio.sleep(0.01)


async def pause_a_worker(scene: Scene) -> None:
    """Long enough that its tokens are taken over, and then it wakes up in the middle of its pass."""
    worker = scene.fleet.some_worker()
    worker.send(signal.SIGSTOP)
    scene.injections += 1
    await asyncio.sleep(LEASE_S * 1.5)
    worker.send(signal.SIGCONT)


async def drain_a_worker(scene: Scene) -> None:
    scene.fleet.some_worker().send(signal.SIGTERM)
    scene.injections += 1


def lose(command: str, one_in: int):
    """Of so many replies one; the command is executed."""

    async def start(scene: Scene) -> None:
        scene.proxy.lose(command, one_in)
        await scene.over.wait()
        scene.injections = scene.proxy.lost

    return start


async def restart_redis(scene: Scene) -> None:
    await asyncio.to_thread(scene.rig.kill)
    scene.rig.start()
    scene.injections += 1


async def cut_for_5_s(scene: Scene) -> None:
    scene.injections += 1
    await scene.proxy.cut(5)


async def slow_replies(scene: Scene) -> None:
    scene.proxy.delay_s = 0.05
    await scene.over.wait()
    scene.injections = 1


async def kill_a_gateway(scene: Scene) -> None:
    scene.random.choice([gateway for gateway in scene.fleet.gateways if gateway.alive]).send(signal.SIGKILL)
    scene.injections += 1


async def forget_everything(scene: Scene) -> None:
    await scene.redis.flushall()
    scene.injections += 1


async def forget_scripts(scene: Scene) -> None:
    await scene.redis.script_flush()
    scene.injections += 1


def kill_clients(kind: str):
    async def kill(scene: Scene) -> None:
        await scene.redis.execute_command("CLIENT", "KILL", "TYPE", kind)
        scene.injections += 1

    return kill


async def send_poison(scene: Scene) -> None:
    scene.injections += 1
    await scene.talk(Talk(scene.seed, 2, poison=True))


async def fill_memory(scene: Scene) -> None:
    """For three seconds nothing fits any more."""
    used = int((await scene.redis.info("memory"))["used_memory"])
    await scene.redis.config_set("maxmemory", used // 2)
    scene.injections += 1
    await asyncio.sleep(3)
    await scene.redis.config_set("maxmemory", 0)


async def stop_listening(scene: Scene) -> None:
    """One client, and its gateway's subscription, while 3,000 events pass."""
    await scene.redis.config_set("client-output-buffer-limit", "pubsub 64kb 32kb 1")
    deaf = asyncio.Event()
    talking = asyncio.create_task(scene.talk(Talk(scene.seed + 500, 2, flushes=3000), deaf=deaf))
    talker = await _last_talker(scene)

    async def all_flushed() -> bool:
        keys = scene.clients.keys
        return bool(talker.session) and await scene.redis.xlen(keys.events(talker.session)) > 3000

    await wait_until(all_flushed, 40)
    scene.injections += 3000
    deaf.set()
    await talking


async def _last_talker(scene: Scene) -> Talker:
    before = len(scene.talkers)
    await wait_until(lambda: len(scene.talkers) > before)
    return scene.talkers[-1]


async def vanish(scene: Scene) -> None:
    """Connect, say a little, drop the connection without a word."""

    async def one() -> None:
        with suppress(OSError):
            async with connect(
                scene.fleet.urls[0].replace("http", "ws") + "/v1/stream?sample_rate=16000"
            ) as socket:
                await socket.send(bytes(3200))
                scene.vanished.append(json.loads(await socket.recv())["session"])
                socket.transport.abort()
        scene.injections += 1

    for _ in range(10):
        await asyncio.gather(*(one() for _ in range(20)))


async def step_the_clock(scene: Scene) -> None:
    """Of one process by an hour: forwards, or back."""
    process = scene.random.choice([process for process in scene.fleet.each() if process.alive])
    process.send(scene.random.choice([signal.SIGUSR1, signal.SIGUSR2]))
    scene.injections += 1


async def fail_over(scene: Scene) -> None:
    await asyncio.to_thread(scene.rig.failover)
    scene.injections += 1


async def kill_master(scene: Scene) -> None:
    await asyncio.to_thread(scene.rig.kill_master)
    scene.injections += 1


async def _busy_slot(scene: Scene) -> int:
    """Of a session that is talking now."""
    session = next(talker.session for talker in reversed(scene.talkers) if talker.session)
    return await asyncio.to_thread(scene.rig.slot_of, scene.clients.keys.meta(session))


async def kill_primary(scene: Scene) -> None:
    slot = await _busy_slot(scene)
    await asyncio.to_thread(scene.rig.kill_primary, slot)
    scene.injections += 1


async def move_slot(scene: Scene) -> None:
    slot = await _busy_slot(scene)
    await asyncio.to_thread(scene.rig.move_slot, slot)
    scene.injections += 1


FAULTS = (
    Fault("no fault", nothing),
    Fault(
        "kill -9 of a random worker every second",
        kill_a_worker,
        1,
        for_s=60,
        clients=6,
        layout=(Group("all", 4),),
    ),
    Fault("kill -9 of a worker that holds a session", kill_an_owner, 3, for_s=20, stall_s=3.0),
    Fault("SIGTERM of a worker under load", drain_a_worker, 2, for_s=10, check=checks.drained),
    Fault(
        "SIGSTOP of a worker past its lease, then SIGCONT",
        pause_a_worker,
        1,
        for_s=12,
        layout=(Group("all", 3),),
    ),
    Fault(
        "poison chunk that crashes its worker",
        send_poison,
        settings={"SCRIBE_WORKER_LEASE_S": "0.5"},
        check=checks.poisoned,
    ),
    Fault("lost replies of XADD (append script)", lose("EVALSHA append", 6)),
    Fault("lost replies of XREADGROUP", lose("XREADGROUP", 4), layout=SPLIT),
    Fault("lost replies of the take script", lose("EVALSHA take", 20), layout=SPLIT),
    Fault("lost replies of the commit script", lose("EVALSHA commit", 6), layout=SPLIT),
    Fault("every reply 50 ms late", slow_replies),
    Fault("connection cut for 5 s", cut_for_5_s, for_s=8),
    Fault("Redis killed and restarted (AOF)", restart_redis, 3, for_s=8, rig=DURABLE),
    Fault("Sentinel: planned failover", fail_over, for_s=10, rig=SentinelRig),
    Fault("Sentinel: master killed", kill_master, for_s=10, rig=SentinelRig),
    Fault("Cluster: primary killed", kill_primary, for_s=10, rig=ClusterRig),
    Fault("Cluster: slot moved", move_slot, 2, for_s=10, rig=ClusterRig),
    Fault("gateway killed, clients resume on another", kill_a_gateway, 2, for_s=10, gateways=2),
    Fault("FLUSHALL under live sessions", forget_everything, check=checks.told_and_recovered),
    Fault("SCRIPT FLUSH", forget_scripts, 0.2),
    Fault("CLIENT KILL TYPE pubsub", kill_clients("pubsub"), 0.5),
    Fault("CLIENT KILL TYPE normal", kill_clients("normal"), 1),
    Fault("Redis out of memory for 3 s", fill_memory, for_s=8),
    Fault("subscriber that reads nothing for 3,000 events", stop_listening),
    Fault(
        "200 clients that connect and vanish",
        vanish,
        settings={"SCRIBE_GATEWAY_RESUME_S": "2"},
        check=checks.vanished,
    ),
    Fault("clock of a process stepped by an hour", step_the_clock, 1, for_s=8),
)
