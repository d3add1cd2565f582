-- End a token without a commit.
-- KEYS  1 ready stream  2 state  3 dead-letter stream
-- ARGV  1 group  2 token  3 session  4 now_ms  5 ttl_ms  6 outcome, 7 what belongs to it:
--       again  its failures so far: a new token at the tail, for whoever is free
--       idle   newest input seen: no token, as nothing is left to do; but a new one if more has come since
--       dead   reason: no token, and a dead letter
--       8 only when its owner has been silent for so many ms ('' whoever has it)
-- Returns 1 when the token was current, 0 when it was an old one (acknowledged all the same), -1 when its owner lives.
-- The new token has a new number, so the fence refuses what the old one's owner may still commit.
-- Without memory a script is refused only before its first write: these are let through, as they free what passes hold.
if ARGV[8] ~= '' and #redis.call('XPENDING', KEYS[1], ARGV[1], 'IDLE', ARGV[8], ARGV[2], ARGV[2], 1) == 0 then
  return -1
end
redis.call('PEXPIRE', KEYS[2], ARGV[5])
local state = redis.call('HMGET', KEYS[2], 'token', 'fed')
local current = state[1] == ARGV[2]
if current then
  local more = ARGV[6] == 'idle' and (state[2] or '0') ~= ARGV[7]
  if ARGV[6] == 'again' or more then
    local failures = more and '0' or ARGV[7]
    local again = redis.call('XADD', KEYS[1], '*', 's', ARGV[3], 't', ARGV[4], 'f', failures)
    redis.call('HSET', KEYS[2], 'token', again)
  else
    redis.call('HDEL', KEYS[2], 'token')
  end
  if ARGV[6] == 'dead' then
    redis.call('XADD', KEYS[3], 'MAXLEN', '~', 10000, '*', 's', ARGV[3], 'token', ARGV[2], 'reason', ARGV[7])
    redis.call('PEXPIRE', KEYS[3], ARGV[5])
  end
end
redis.call('XACK', KEYS[1], ARGV[1], ARGV[2])
redis.call('XDEL', KEYS[1], ARGV[2])
return current and 1 or 0
