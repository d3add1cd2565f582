"""Opening a session, and claiming one that a client comes back to."""

import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass

from gateway.place import Place
from shared.clock import wall_ms
from shared.errors import BadInput
from shared.protocol import Resume, SessionOptions
from shared.redis_client import RedisClients, translated

_START = Place()

_ID = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class Held:
    """A session as the one connection that may append to it knows it."""

    session: str
    resume_token: str
    options: SessionOptions
    holder: int = 1  # number of this connection among the session's; a larger one takes its place
    fed: int = 0  # newest entry of the audio stream
    place: Place = _START
    over: bool = False  # no more audio is taken
    last_event: int = 0  # newest the client has
    lasting: int = 0  # how many of the events it has last
    heard_all: bool = False  # the session is over and the client has its last event
    resumed: bool = False


def new_session_id() -> str:
    """128 random bits: who does not know it can't guess it."""
    return secrets.token_hex(16)


def is_session_id(text: str) -> bool:
    """Whether it could be one."""
    return _ID.fullmatch(text) is not None


def channel_sessions(session: str, channels: int) -> list[str]:
    """The sessions of a call's channels: the first has the call's id, the others follow from it."""
    others = (f"{session}:{channel}".encode() for channel in range(1, channels))
    return [session, *(hashlib.sha256(each).hexdigest()[:32] for each in others)]


async def open_session(
    clients: RedisClients,
    options: SessionOptions,
    wait_s: float = 30,
    session: str | None = None,
    *,
    owner: str = "anonymous",
    resume_token: str | None = None,
) -> Held:
    """Create a session that waits `wait_s` for a client that was cut off. Of the resume token only a hash is stored."""
    held = Held(session or new_session_id(), resume_token or secrets.token_urlsafe(24), options)
    meta = {
        "options": options.model_dump_json(),
        "resume": _hash(held.resume_token),
        "owner": owner,
        "created_ms": int(wall_ms()),
    }
    keys, sid = clients.keys, held.session
    fields = [part for pair in meta.items() for part in pair]
    await clients.run(
        "open",
        [keys.meta(sid), keys.open_sessions_of(sid)],
        [sid, clients.ttl_ms, int(wait_s * 1000), *fields],
    )
    return held


async def resume_session(clients: RedisClients, asked: Resume, wait_s: float, owner: str) -> Held:
    """Claim the session for its owner with its token. Raises BadInput."""
    with translated():
        known, its_owner = await clients.commands.hmget(clients.keys.meta(asked.session), "resume", "owner")
    # One answer for all: who guesses ids must not learn which exist.
    if (
        known is None
        or not hmac.compare_digest(known.decode(), _hash(asked.resume_token))
        or its_owner != owner.encode()
    ):
        raise BadInput(
            "resume: no session with this id and resume token; it never existed, or has expired: open a new one"
        )
    held = await claim(clients, asked.session, wait_s, asked)
    if held is None:
        raise BadInput("resume: the session has just expired; open a new one")
    return held


async def claim(
    clients: RedisClients, session: str, wait_s: float, asked: Resume | None = None
) -> Held | None:
    """Become the session's connection, for a client that asks or to end it when nobody has renewed it in time.

    None when it is gone, or not overdue. Raises BadInput for a client that has events which never were.
    """
    keys, last_event = clients.keys, asked.last_event if asked else 0
    reply = await clients.run(
        "claim",
        [
            keys.meta(session),
            keys.state(session, "frontend"),
            keys.open_sessions_of(session),
            keys.events(session),
        ],
        [session, int(wait_s * 1000), int(asked is None), last_event],
    )
    if reply is None:
        return None
    if isinstance(reply, int):
        raise BadInput(f"resume: last_event {last_event} has never been sent: the newest event is {reply}")
    status, holder, fed, at, over, events, lasting, options = reply
    return Held(
        session,
        asked.resume_token if asked else "",
        SessionOptions.model_validate_json(options),
        holder=holder,
        fed=fed,
        place=Place.read(at),
        over=bool(over) or status != b"open",
        last_event=last_event,
        lasting=lasting,
        heard_all=status != b"open" and last_event >= events,
        resumed=True,
    )


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
