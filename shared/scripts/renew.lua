-- Renew the leases of tokens in flight, each only while this consumer still owns it: a worker that was paused must
-- not take back what a peer has reclaimed.
-- KEYS  1 ready stream
-- ARGV  1 group  2 consumer  then tokens
-- Returns how many were renewed.
local renewed = 0
for i = 3, #ARGV do
  local pending = redis.call('XPENDING', KEYS[1], ARGV[1], ARGV[i], ARGV[i], 1)
  if pending[1] and pending[1][2] == ARGV[2] then
    redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[2], 0, ARGV[i], 'JUSTID')
    renewed = renewed + 1
  end
end
return renewed
