-- Append one entry to a session's audio stream and make sure the frontend has a token for it.
-- KEYS  1 audio stream  2 state:frontend  3 ready:frontend  4 meta
-- ARGV  1 seq  2 kind (audio|gap|flush|end)  3 payload  4 session  5 received_ms  6 now_ms  7 ttl_ms
-- Returns 1 when appended, 0 when this very entry is already there (a retry whose reply was lost).
-- Errors: GONE no such open session; HOLE <fed> entries before seq are missing; CONFLICT another writer's entry.
-- Numbered ids make the append idempotent on every server since 5.0.
if redis.call('HGET', KEYS[4], 'status') ~= 'open' then
  return redis.error_reply('GONE the session is not open')
end
local seq = tonumber(ARGV[1])
local fed = tonumber(redis.call('HGET', KEYS[2], 'fed') or '0')
if seq <= fed then
  local there = redis.call('XRANGE', KEYS[1], ARGV[1] .. '-0', ARGV[1] .. '-0')
  -- An entry that was processed and trimmed can't be compared any more; it came from this numbering, so it is ours.
  if #there > 0 and there[1][2][4] ~= ARGV[3] then
    return redis.error_reply('CONFLICT entry ' .. ARGV[1] .. ' exists with other content')
  end
  return 0
end
if seq > fed + 1 then
  return redis.error_reply('HOLE ' .. fed)
end
redis.call('XADD', KEYS[1], ARGV[1] .. '-0', 'k', ARGV[2], 'p', ARGV[3], 't', ARGV[5])
redis.call('HSET', KEYS[2], 'fed', ARGV[1])
if redis.call('HEXISTS', KEYS[2], 'token') == 0 then
  local token = redis.call('XADD', KEYS[3], '*', 's', ARGV[4], 't', ARGV[6])
  redis.call('HSET', KEYS[2], 'token', token)
end
for _, key in ipairs({KEYS[1], KEYS[2], KEYS[4]}) do
  redis.call('PEXPIRE', key, ARGV[7])
end
return 1
