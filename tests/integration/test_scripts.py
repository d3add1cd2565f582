"""The Lua scripts' contracts, on a real server."""

import json

import pytest

from gateway.ingest import Ingest
from gateway.sessions import open_session
from shared.errors import BadInput, Stale
from shared.protocol import SessionOptions
from shared.redis_client import GROUP
from workers.tokens import Token, TokenQueue


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
    return TokenQueue(clients, stages, consumer)


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


async def test_a_silent_owners_token_is_reclaimed_and_its_late_commit_still_counts_once(
    clients, session, ingest
):
    await ingest.append("audio", b"..", 0)
    token = await queue(clients, "slow").take()

    (taken_over, deliveries), *rest = await queue(clients, "peer").reclaim(0)

    assert (taken_over, deliveries, rest) == (token, 2, [])
    await commit(clients, token, 0, 1)
    with pytest.raises(Stale):
        await commit(clients, taken_over, 0, 1)


async def test_only_the_owner_can_renew_a_lease(clients, ingest):
    await ingest.append("audio", b"..", 0)
    token = await queue(clients, "slow").take()
    await queue(clients, "peer").reclaim(0)

    assert await clients.run("renew", [token.ready], [GROUP, "slow", token.id]) == 0
    assert await clients.run("renew", [token.ready], [GROUP, "peer", token.id]) == 1


async def test_a_token_handed_back_goes_to_a_peer_at_once(clients, session, ingest):
    await ingest.append("audio", b"..", 0)
    token = await queue(clients, "leaving").take()

    await queue(clients, "leaving").settle(token)

    given = await queue(clients, "peer").take()
    assert given.session == session
    assert (await state(clients, session))[b"token"].decode() == given.id


async def test_a_dead_letter_keeps_its_reason_and_the_session_no_token(clients, session, ingest):
    await ingest.append("audio", b"..", 0)
    token = await queue(clients).take()

    await queue(clients).settle(token, "poison")

    ((_, letter),) = await clients.commands.xrange(clients.keys.dead(token.partition))
    assert (letter[b"s"].decode(), letter[b"reason"]) == (session, b"poison")
    assert b"token" not in await state(clients, session)
    assert await queue(clients).take() is None


async def test_a_worker_with_the_current_version_reads_only_new_input(clients, session, ingest):
    await ingest.append("audio", b"one", 0)
    first = await queue(clients).take()
    await ingest.append("audio", b"two", 0)
    await commit(clients, first, 0, 1)
    token = await queue(clients).take()
    names = [clients.keys.state(session, "frontend"), clients.keys.inputs(session, "frontend")]

    ((seq, fed, version, current, blob, entries),) = await clients.run("load", names, [token.id, first.id])

    assert (seq, fed, version.decode(), current.decode(), blob) == (1, 2, first.id, token.id, b"")
    assert [i for i, _ in entries] == [b"2-0"]
    ((*_, blob, entries),) = await clients.run("load", names, [token.id, ""])
    assert blob == b"blob"
    assert await clients.run("load", names, ["0-1", ""]) is None


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
