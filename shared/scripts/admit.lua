-- Take or renew a seat: one of the sessions that an owner may have connected at a time, on all gateways.
-- KEYS  1 the owner's seats: session -> end of its lease (Unix ms of the server's clock)
-- ARGV  1 session  2 lease_ms  3 how many seats there are (0: no limit)
-- Returns 1 when the session has a seat now, 0 when all are taken.
-- The first write is one that a full Redis refuses, so nothing is half done.
-- A seat that its gateway does not renew falls free; one that the session still has is renewed, whatever the limit is.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local seats, mine = tonumber(ARGV[3]), redis.call('ZSCORE', KEYS[1], ARGV[1])
local has_one = mine and tonumber(mine) > now
if seats > 0 and not has_one and redis.call('ZCOUNT', KEYS[1], '(' .. now, '+inf') >= seats then
  return 0
end
redis.call('ZADD', KEYS[1], now + ARGV[2], ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 1
