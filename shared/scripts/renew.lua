-- Renew the lease of the token in hand, only while this consumer still owns it: a worker that was paused must not keep
-- a peer from what is no longer its own.
-- KEYS  1 ready stream
-- ARGV  1 group  2 consumer  3 token
-- Returns 1 when it was renewed, else 0.
local pending = redis.call('XPENDING', KEYS[1], ARGV[1], ARGV[3], ARGV[3], 1)
if not pending[1] or pending[1][2] ~= ARGV[2] then
  return 0
end
redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[2], 0, ARGV[3], 'JUSTID')
return 1
