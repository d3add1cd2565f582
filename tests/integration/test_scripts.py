"""The Lua scripts' contracts, on a real server."""

import asyncio
import json

import pytest

from gateway.ingest import Ingest
from gateway.sessions import open_session
from shared.errors import BadInput, Stale
from shared.protocol import SessionOptions
from shared.redis_client import GROUP, script_source, sync_client
from workers.shards import token_queue
from workers.tokens import Token


@pytest.fixture
async def held(clients):
    return await open_session(clients, SessionOptions())


@pytest.fixture
def session(held):
    return held.session


@pytest.fixture
def ingest(clients, held):
    return Ingest(clients, held)


def queue(clients, consumer="w1", stages=("frontend", "acoustic", "decoder")):
    return token_queue(clients, stages, consumer)


async def commit(clients, token: Token, old, new, *, output=b"", events=(), status=""):
    """Commit a frontend pass."""
    keys, sid = clients.keys, token.session
    names = [
        token.ready,
        keys.meta(sid),
        keys.events(sid),
        keys.state(sid, token.stage),
        keys.inputs(sid, token.stage),
    ]
    if output:
        names += [keys.state(sid, "acoustic"), keys.inputs(sid, "acoustic"), keys.ready_of(sid, "acoustic")]
    head = [token.id, GROUP, sid, clients.ttl_ms, 0, keys.channel(sid), status, 1, "1" * len(events)]
    return await clients.run("commit", names, [*head, old, new, new + 1, b"blob", output, 1, *events])


async def state(clients, session, stage="frontend"):
    return await clients.commands.hgetall(clients.keys.state(session, stage))


async def test_a_server_that_forgets_scripts_all_the_time_still_runs_them(clients, session):
    async def forget() -> None:
        while True:
            await clients.blocking.script_flush()

    sync = sync_client(clients.settings)
    renew = sync.register_script(script_source("renew"))
    ready, opened = clients.keys.ready_of(session, "frontend"), clients.keys.open_sessions_of(session)
    forgetting = asyncio.create_task(forget())
    try:
        for _ in range(100):
            await clients.run("keepalive", [opened], [clients.ttl_ms, 1000])
            await asyncio.to_thread(renew, keys=[ready], args=[GROUP, "w1", "1-0"])
    finally:
        forgetting.cancel()
        sync.close()


async def test_a_new_session_waits_its_whole_time_for_its_client(clients):
    seconds, micros = await clients.commands.time()
    sid = (await open_session(clients, SessionOptions(), wait_s=0.5)).session
    deadline = await clients.commands.zscore(clients.keys.open_sessions_of(sid), sid)

    assert deadline >= seconds * 1000 + micros // 1000 + 500


async def test_a_session_has_one_token_however_many_chunks_wait(clients, session, ingest):
    for _ in range(3):
        await ingest.append("audio", b"..", 0)

    assert (await queue(clients).take()).session == session
    assert await queue(clients).take() is None


async def test_sessions_are_served_in_the_order_their_work_came_however_many_share_a_partition(clients):
    opened = [await open_session(clients, SessionOptions()) for _ in range(24)]
    for held in opened:
        await Ingest(clients, held).append("audio", b"..", 0)

    worker = queue(clients)
    taken = [await worker.take() for _ in opened]
    assert {token.session for token in taken} == {held.session for held in opened}
    arrivals = [int(token.id.split("-")[0]) for token in taken]  # in milliseconds: several may be the same
    assert arrivals == sorted(arrivals)


async def test_a_repeated_append_adds_nothing(clients, session, ingest):
    await ingest.append("audio", b"one", 0)
    ingest.seq = 0
    await ingest.append("audio", b"one", 5)

    assert await clients.commands.xlen(clients.keys.inputs(session, "frontend")) == 1


async def test_another_writer_under_the_same_number_is_refused(ingest):
    await ingest.append("audio", b"one", 0)
    ingest.seq = 0

    with pytest.raises(BadInput, match="CONFLICT"):
        await ingest.append("audio", b"two", 0)


async def test_nothing_is_appended_to_a_session_that_is_over(clients, session, ingest):
    await clients.commands.hset(clients.keys.meta(session), "status", "ended")

    with pytest.raises(BadInput, match="GONE"):
        await ingest.append("audio", b"..", 0)


async def test_a_commit_moves_the_state_feeds_the_next_stage_and_publishes_in_order(clients, session, ingest):
    await ingest.append("audio", b"..", 0)
    token = await queue(clients).take()
    channel = clients.pubsub.pubsub(ignore_subscribe_messages=True)
    await channel.subscribe(clients.keys.channel(session))

    await commit(clients, token, 0, 1, output=b"speech", events=['{"type":"a"}', '{"type":"b"}'])

    assert (await state(clients, session))[b"seq"] == b"1"
    assert b"token" not in await state(clients, session)
    following = await queue(clients).take()
    assert (following.stage, following.session) == ("acoustic", session)
    stored = await clients.commands.xrange(clients.keys.events(session))
    assert [(i, json.loads(f[b"e"])) for i, f in stored] == [
        (b"1-0", {"event": 1, "type": "a"}),
        (b"2-0", {"event": 2, "type": "b"}),
    ]
    published = []
    while len(published) < 2:
        message = await channel.get_message(timeout=1)
        published += [message["data"]] if message else []
    assert published == [fields[b"e"] for _, fields in stored]
    await channel.aclose()


async def test_a_commit_with_another_workers_token_changes_nothing(clients, session, ingest):
    await ingest.append("audio", b"..", 0)
    token = await queue(clients).take()
    await clients.commands.hset(clients.keys.state(session, "frontend"), "token", "other")
    before = await state(clients, session)

    with pytest.raises(Stale, match="token"):
        await commit(clients, token, 0, 1, output=b"speech", events=['{"type":"a"}'])

    assert await state(clients, session) == before
    assert (
        await clients.commands.exists(clients.keys.events(session), clients.keys.inputs(session, "acoustic"))
        == 0
    )


async def test_a_commit_from_an_older_state_changes_nothing(clients, session, ingest):
    await ingest.append("audio", b"..", 0)
    token = await queue(clients).take()
    await clients.commands.hset(clients.keys.state(session, "frontend"), "seq", 7)

    with pytest.raises(Stale, match="seq"):
        await commit(clients, token, 0, 1)


async def test_the_same_commit_twice_counts_once(clients, session, ingest):
    """A retry whose first reply was lost."""
    await ingest.append("audio", b"..", 0)
    token = await queue(clients).take()
    await commit(clients, token, 0, 1, events=['{"type":"a"}'])

    with pytest.raises(Stale):
        await commit(clients, token, 0, 1, events=['{"type":"a"}'])

    assert await clients.commands.xlen(clients.keys.events(session)) == 1


async def test_input_that_came_meanwhile_gets_a_token_at_the_tail(clients, session, ingest):
    await ingest.append("audio", b"..", 0)
    token = await queue(clients).take()
    await ingest.append("audio", b"..", 0)

    await commit(clients, token, 0, 1)

    again = await queue(clients).take()
    assert again.session == session
    assert again.id > token.id
    assert await clients.commands.xlen(token.ready) == 1


async def test_a_token_taken_over_has_another_number_and_its_old_owner_can_write_nothing(
    clients, session, ingest
):
    await ingest.append("audio", b"..", 0)
    token = await queue(clients, "slow").take()
    peer = queue(clients, "peer")

    ((found, begun),) = await peer.silent(0)
    assert (found.id, begun) == (token.id, False)
    assert await peer.hand_back(found, idle_ms=0) == 1

    with pytest.raises(Stale):
        await commit(clients, token, 0, 1)
    await commit(clients, await peer.take(), 0, 1)


async def test_a_token_whose_owner_was_heard_of_meanwhile_is_not_taken_over(clients, ingest):
    await ingest.append("audio", b"..", 0)
    token = await queue(clients, "alive").take()

    assert await queue(clients, "peer").hand_back(token, idle_ms=60_000) == -1
    assert [mine.id for mine in await queue(clients, "alive").mine()] == [token.id]


async def test_a_pass_has_begun_when_it_was_loaded_and_looking_at_ones_tokens_counts_for_nothing(
    clients, session, ingest
):
    await ingest.append("audio", b"..", 0)
    worker = queue(clients)
    token = await worker.take()
    for _ in range(5):
        assert [mine.id for mine in await worker.mine()] == [token.id]
    assert [begun for _, begun in await worker.silent(0)] == [False]

    names = [token.ready, clients.keys.state(session, "frontend"), clients.keys.inputs(session, "frontend")]
    await clients.run("load", names, [token.id, GROUP, "w1", ""])

    assert [begun for _, begun in await worker.silent(0)] == [True]


async def test_only_the_owner_can_renew_a_lease(clients, ingest):
    await ingest.append("audio", b"..", 0)
    token = await queue(clients, "slow").take()
    await clients.commands.xclaim(token.ready, GROUP, "peer", 0, [token.id])

    assert await clients.run("renew", [token.ready], [GROUP, "slow", token.id]) == 0
    assert await clients.run("renew", [token.ready], [GROUP, "peer", token.id]) == 1


async def test_a_token_handed_back_goes_to_a_peer_at_once_with_its_failures(clients, session, ingest):
    await ingest.append("audio", b"..", 0)
    token = await queue(clients, "leaving").take()

    await queue(clients, "leaving").hand_back(token, failures=2)

    given = await queue(clients, "peer").take()
    assert (given.session, given.failures) == (session, 2)
    assert (await state(clients, session))[b"token"].decode() == given.id
    await queue(clients, "peer").hand_back(given)
    assert (await queue(clients).take()).failures == 2


async def test_a_token_with_nothing_to_do_is_gone_unless_more_has_come(clients, session, ingest):
    await ingest.append("audio", b"..", 0)
    first = await queue(clients).take()
    await ingest.append("audio", b"..", 0)

    await queue(clients).idle(first, 1)
    second = await queue(clients).take()
    await queue(clients).idle(second, 2)

    assert second.session == session
    assert await queue(clients).take() is None
    assert b"token" not in await state(clients, session)


async def test_a_dead_letter_keeps_its_reason_and_the_session_no_token(clients, session, ingest):
    await ingest.append("audio", b"..", 0)
    token = await queue(clients).take()

    await queue(clients).bury(token, "poison")

    ((_, letter),) = await clients.commands.xrange(clients.keys.dead(token.partition))
    assert (letter[b"s"].decode(), letter[b"reason"]) == (session, b"poison")
    assert b"token" not in await state(clients, session)
    assert await queue(clients).take() is None


async def test_a_token_whose_entry_was_deleted_is_nobodys_any_more(clients, ingest):
    await ingest.append("audio", b"..", 0)
    token = await queue(clients).take()
    await clients.commands.xdel(token.ready, token.id)

    assert await queue(clients, "peer").silent(0) == []
    assert (await clients.commands.xpending(token.ready, GROUP))["pending"] == 0


async def test_consumers_that_left_or_were_long_silent_are_forgotten_but_none_with_a_token(clients, ingest):
    await ingest.append("audio", b"..", 0)
    token = await queue(clients, "busy").take()
    for name in ("leaving", "old"):
        await clients.commands.xgroup_createconsumer(token.ready, GROUP, name)

    assert await clients.run("forget", [token.ready], [GROUP, "leaving", 60_000]) == 1
    assert await clients.run("forget", [token.ready], [GROUP, "busy", 0]) == 1

    left = await clients.commands.xinfo_consumers(token.ready, GROUP)
    assert [consumer["name"] for consumer in left] == [b"busy"]


async def test_heartbeats_are_stamped_and_outlived_by_the_servers_clock_alone(clients):
    beats = clients.keys.workers("frontend")
    hour = 3_600_000
    now, _ = await clients.commands.time()
    stale = {"dead": now * 1000 - hour, "from the future": now * 1000 + hour}
    for name, seen in stale.items():
        await clients.commands.hset(beats, name, json.dumps({"seen_ms": seen}))

    await clients.run("beat", [beats], ["w1", 10_000, '{"in_flight":0}'])

    assert await clients.commands.hkeys(beats) == [b"w1"]
    name, beat = await clients.run("peers", [beats], [1000])
    assert name == b"w1"
    assert json.loads(beat)["in_flight"] == 0


async def test_a_server_clock_that_was_set_back_starves_no_stream(clients):
    """New numbers of a stream with one from the future stand still there: they say nothing about age."""
    ahead = (await clients.commands.time())[0] * 1000 + 3_600_000
    sessions = [(await open_session(clients, SessionOptions())) for _ in range(24)]
    ready = clients.keys.ready_of(sessions[0].session, "frontend")
    await clients.commands.xadd(ready, {"s": "x", "t": 0}, id=f"{ahead}-0")
    await clients.commands.xdel(ready, f"{ahead}-0")
    for held in sessions:
        await Ingest(clients, held).append("audio", b"..", 0)
    worker, taken = queue(clients), []

    for _ in range(40):  # each comes again at the tail, as under overload
        token = await worker.take()
        taken.append(token.ready)
        assert token.waited_ms < 60_000
        await worker.hand_back(token)

    assert 1 < taken.count(ready) < 39


async def test_a_worker_with_the_current_version_reads_only_new_input(clients, session, ingest):
    await ingest.append("audio", b"one", 0)
    first = await queue(clients).take()
    await ingest.append("audio", b"two", 0)
    await commit(clients, first, 0, 1)
    token = await queue(clients).take()
    names = [token.ready, clients.keys.state(session, "frontend"), clients.keys.inputs(session, "frontend")]
    who = [GROUP, "w1"]

    ((seq, fed, version, current, blob, entries),) = await clients.run(
        "load", names, [token.id, *who, f"{first.id}:1"]
    )

    assert (seq, fed, version.decode(), current.decode(), blob) == (1, 2, f"{first.id}:1", token.id, b"")
    assert [i for i, _ in entries] == [b"2-0"]
    ((*_, blob, entries),) = await clients.run("load", names, [token.id, *who, ""])
    assert blob == b"blob"
    assert await clients.run("load", names, ["0-1", *who, ""]) is None


async def test_two_commits_under_equal_token_numbers_are_two_versions(clients, session, ingest):
    """A frontend's token, which fuses the acoustic stage, and an acoustic one of the same millisecond."""
    await ingest.append("audio", b"one", 0)
    token = await queue(clients).take()
    await commit(clients, token, 0, 1)
    state = clients.keys.state(session, "frontend")
    before = await clients.commands.hget(state, "version")
    await ingest.append("audio", b"two", 0)
    await clients.commands.hset(state, "token", token.id)  # as that of another stream would be
    await commit(clients, token, 1, 2)

    assert await clients.commands.hget(state, "version") != before


async def test_tokens_of_many_sessions_are_taken_in_turn(clients):
    sessions = set()
    for _ in range(8):
        held = await open_session(clients, SessionOptions())
        await Ingest(clients, held).append("audio", b"..", 0)
        sessions.add(held.session)
    one = queue(clients)

    assert {(await one.take()).session for _ in range(8)} == sessions


async def test_every_key_of_a_session_is_in_its_partitions_hash_tag(clients, session):
    keys = clients.keys
    tag = f"{{p{keys.partition(session):02d}}}"

    assert all(tag in key for key in [*keys.session_keys(session), keys.ready_of(session, "frontend")])
