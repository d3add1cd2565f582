-- End a token without a pass: hand it back to the tail for a peer, or bury it as a dead letter.
-- KEYS  1 ready stream  2 state  3 dead-letter stream
-- ARGV  1 group  2 token  3 session  4 now_ms  5 reason ('' hands back)  6 ttl_ms
-- Returns 1 when the token was current, 0 when it was an old one (acknowledged all the same).
local current = redis.call('HGET', KEYS[2], 'token') == ARGV[2]
if current and ARGV[5] == '' then
  local again = redis.call('XADD', KEYS[1], '*', 's', ARGV[3], 't', ARGV[4])
  redis.call('HSET', KEYS[2], 'token', again)
end
if current and ARGV[5] ~= '' then
  redis.call('XADD', KEYS[3], 'MAXLEN', '~', 10000, '*', 's', ARGV[3], 'token', ARGV[2], 'reason', ARGV[5])
  redis.call('PEXPIRE', KEYS[3], ARGV[6])
  redis.call('HDEL', KEYS[2], 'token')
end
redis.call('XACK', KEYS[1], ARGV[1], ARGV[2])
redis.call('XDEL', KEYS[1], ARGV[2])
return current and 1 or 0
