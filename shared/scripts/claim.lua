-- Become the one connection that may append to a session: for a client that comes back, or to end a session whose
-- client did not.
-- KEYS  1 meta  2 state:frontend  3 open sessions of the partition  4 events
-- ARGV  1 session  2 wait_ms  3 '1': only if nobody has renewed it in time
--       4 newest event the client has: numbers go on after it, should Redis have lost some (1000 at most)
-- Returns nil when there is no such session, or it is not overdue; the newest event's number, and claims nothing, when
--         the client names a later one than can have been lost;
--         else {status, holder, fed, at, over (0|1), events, lasting (at the newest event the client has), options}.
-- Whoever held it before is refused by append.
-- Deadlines are on the server's clock: gateways' clocks may differ.
local meta = redis.call('HMGET', KEYS[1], 'status', 'holder', 'events', 'lasting', 'options')
if not meta[1] then
  redis.call('ZREM', KEYS[3], ARGV[1])
  return nil
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if ARGV[3] == '1' and tonumber(redis.call('ZSCORE', KEYS[3], ARGV[1]) or '0') > now then
  return nil
end
local holder, events, has = tonumber(meta[2]), tonumber(meta[3]), tonumber(ARGV[4])
if meta[1] == 'open' and has > events then
  if has > events + 1000 then
    return events
  end
  redis.call('HSET', KEYS[1], 'events', has)
  events = has
end
local state = redis.call('HMGET', KEYS[2], 'fed', 'at', 'over')
if meta[1] == 'open' and not state[3] then
  holder = redis.call('HINCRBY', KEYS[1], 'holder', 1)
  redis.call('ZADD', KEYS[3], now + ARGV[2], ARGV[1])
else
  redis.call('ZREM', KEYS[3], ARGV[1])
end
local lasting = '0'
if has > 0 then
  local newest = redis.call('XRANGE', KEYS[4], ARGV[4] .. '-0', ARGV[4] .. '-0')[1]
  lasting = newest and newest[2][4] or meta[4]
end
return {meta[1], holder, tonumber(state[1] or '0'), state[2] or '', state[3] and 1 or 0,
  events, tonumber(lasting), meta[5]}
