-- Append one entry to a session's audio stream and make sure the frontend has a token for it.
-- KEYS  1 audio stream  2 state:frontend  3 ready:frontend  4 meta  5 open sessions of the partition
-- ARGV  1 seq  2 kind (audio|gap|flush|end)  3 payload  4 session  5 received_ms  6 now_ms  7 ttl_ms
--       8 holder: the connection's number  9 at: where the client is after this entry; for claim, opaque here
-- Returns the newest entry's number: at least seq when the entry is there, now or since an earlier try whose reply was
-- lost; less when entries before it are missing, and then nothing was added.
-- Errors: LOST no such session; GONE it is over; TAKEN another connection has claimed it; CONFLICT another writer's entry.
-- Numbered ids make the append idempotent on every server since 5.0.
local meta = redis.call('HMGET', KEYS[4], 'status', 'holder')
if not meta[1] then
  return redis.error_reply('LOST Redis has lost the session, or it has expired')
end
if meta[1] ~= 'open' then
  return redis.error_reply('GONE the session is over')
end
-- Less only: after a failover to an older copy the true holder's number is the larger one.
if tonumber(ARGV[8]) < tonumber(meta[2]) then
  return redis.error_reply('TAKEN another connection has resumed this session')
end
local seq = tonumber(ARGV[1])
local state = redis.call('HMGET', KEYS[2], 'fed', 'token', 'over')
local fed = tonumber(state[1] or '0')
if seq <= fed then
  local there = redis.call('XRANGE', KEYS[1], ARGV[1] .. '-0', ARGV[1] .. '-0')
  -- An entry that was processed and trimmed can't be compared any more; it came from this numbering, so it is ours.
  if #there > 0 and there[1][2][4] ~= ARGV[3] then
    return redis.error_reply('CONFLICT entry ' .. ARGV[1] .. ' exists with other content')
  end
  return fed
end
if state[3] then
  return redis.error_reply('GONE the audio has ended')
end
if seq > fed + 1 then
  return fed
end
redis.call('XADD', KEYS[1], ARGV[1] .. '-0', 'k', ARGV[2], 'p', ARGV[3], 't', ARGV[5])
redis.call('HSET', KEYS[2], 'fed', ARGV[1], 'at', ARGV[9])
if ARGV[2] == 'end' then
  redis.call('HSET', KEYS[2], 'over', '1')
  redis.call('ZREM', KEYS[5], ARGV[4])
end
-- A token whose entry is gone (its stream was deleted or restored from an older copy) would never be worked on.
if not state[2] or #redis.call('XRANGE', KEYS[3], state[2], state[2]) == 0 then
  local token = redis.call('XADD', KEYS[3], '*', 's', ARGV[4], 't', ARGV[6])
  redis.call('HSET', KEYS[2], 'token', token)
end
for _, key in ipairs({KEYS[1], KEYS[2], KEYS[4]}) do
  redis.call('PEXPIRE', key, ARGV[7])
end
return seq
