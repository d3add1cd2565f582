-- Say that these sessions still have their client, and hear of those that have lost theirs for too long.
-- KEYS  1 open sessions of the partition
-- ARGV  1 ttl_ms  2 wait_ms  then sessions
-- Returns up to 20 sessions whose deadline has passed. Deadlines are on the server's clock.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
for i = 3, #ARGV do
  redis.call('ZADD', KEYS[1], 'XX', now + ARGV[2], ARGV[i])
end
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'LIMIT', 0, 20)
