-- Look whether an open session still has a work token for every stage that has work, and bring those that vanished: a
-- ready stream was deleted or trimmed, or restored from an older copy, and nothing more may come that would bring one.
-- KEYS  1 meta  then per stage, frontend first: state, ready stream
-- ARGV  1 session  2 now_ms
-- Returns the number of the newest chunk appended, as Redis has it.
if redis.call('HGET', KEYS[1], 'status') == 'open' then
  for i = 2, #KEYS, 2 do
    local h = redis.call('HMGET', KEYS[i], 'seq', 'fed', 'token')
    local behind = tonumber(h[2] or '0') > tonumber(h[1] or '0')
    if behind and (not h[3] or #redis.call('XRANGE', KEYS[i + 1], h[3], h[3]) == 0) then
      redis.call('HDEL', KEYS[i], 'token') -- needs no memory, and lets the rest through where there is none
      local token = redis.call('XADD', KEYS[i + 1], '*', 's', ARGV[1], 't', ARGV[2])
      redis.call('HSET', KEYS[i], 'token', token)
    end
  end
end
return tonumber(redis.call('HGET', KEYS[2], 'fed') or '0')
