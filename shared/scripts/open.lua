-- Open a session.
-- KEYS  1 meta  2 open sessions of the partition
-- ARGV  1 session  2 ttl_ms  3 wait_ms, how long it waits for its client  then fields and values of meta
-- Returns 1.
redis.call('HSET', KEYS[1], 'status', 'open', 'holder', '1', 'events', '0', 'lasting', '0', unpack(ARGV, 4))
redis.call('PEXPIRE', KEYS[1], ARGV[2])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZADD', KEYS[2], now + ARGV[3], ARGV[1])
redis.call('PEXPIRE', KEYS[2], ARGV[2])
return 1
