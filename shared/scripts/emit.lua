-- Add events that no stage produced (gap, error) to a session's events, numbered and published like all others.
-- KEYS  1 meta  2 events
-- ARGV  1 channel  2 ttl_ms  3 new status ('' for none)  then events: JSON objects without their number
-- Returns the number of the last event, 0 when the session is gone or already over.
if redis.call('HGET', KEYS[1], 'status') ~= 'open' then
  return 0
end
redis.call('PEXPIRE', KEYS[1], ARGV[2]) -- needs no memory, and lets the rest through where there is none
local count, numbered = 0, {}
for i = 4, #ARGV do
  count = redis.call('HINCRBY', KEYS[1], 'events', 1)
  local json = '{"event":' .. count .. ',' .. string.sub(ARGV[i], 2)
  local lasting = redis.call('HINCRBY', KEYS[1], 'lasting', 1)
  redis.call('XADD', KEYS[2], count .. '-0', 'e', json, 'n', lasting, 'l', 1)
  numbered[#numbered + 1] = json
end
if ARGV[3] ~= '' then
  redis.call('HSET', KEYS[1], 'status', ARGV[3])
end
redis.call('PEXPIRE', KEYS[2], ARGV[2])
for _, json in ipairs(numbered) do
  redis.call(string.find(ARGV[1], '{', 1, true) and 'SPUBLISH' or 'PUBLISH', ARGV[1], json) -- sharded
end
return count
