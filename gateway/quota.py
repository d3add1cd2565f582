"""What an owner uses over all gateways, counted in Redis: seats (connected sessions) and audio per day."""

import time

from shared.clock import wall_ms
from shared.errors import QuotaExceeded
from shared.redis_client import RedisClients, translated

# A seat outlives its gateway, or the connection of a client that may come back, by this much at most. Longer than a
# session waits for its client (SCRIBE_GATEWAY_RESUME_S), so that who comes back finds its seat.
LEASE_S = 45.0
_DAY_S = 86_400
_SEAT_RETRY_S = 5.0


async def take_seat(clients: RedisClients, owner: str, session: str, seats: int) -> None:
    """Take a seat or renew it; `seats` 0: no limit. Raises QuotaExceeded, RedisUnavailable, Overloaded."""
    args = [session, int(LEASE_S * 1000), seats]
    if not await clients.run("admit", [clients.keys.seats(owner)], args):
        raise QuotaExceeded(
            f"this key may have {seats} session(s) at a time: end one first", retry_after_s=_SEAT_RETRY_S
        )


async def leave_seat(clients: RedisClients, owner: str, session: str) -> None:
    with translated():
        await clients.commands.zrem(clients.keys.seats(owner), session)


async def add_heard(clients: RedisClients, owner: str, audio_ms: int) -> int:
    """Add to today's audio (0: only ask); milliseconds of it so far."""
    key = clients.keys.heard(owner, time.strftime("%Y%m%d", time.gmtime(wall_ms() / 1000)))
    with translated():
        # No transaction: redis-py's in a Cluster starts a thread with an event loop of its own for each command.
        pipe = clients.commands.pipeline(transaction=False)
        pipe.incrby(key, audio_ms)
        pipe.expire(key, 2 * _DAY_S)
        total, _ = await pipe.execute()
    return int(total)


def out_of_audio(seconds: float) -> QuotaExceeded:
    """What an owner hears whose audio for today is used up."""
    wait = _DAY_S - wall_ms() / 1000 % _DAY_S
    return QuotaExceeded(
        f"this key may send {seconds:g} s of audio a day, and has: it begins anew at 0:00 UTC",
        retry_after_s=round(wait),
    )
