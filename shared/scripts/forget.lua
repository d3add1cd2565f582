-- Delete consumers that no longer come: one script, because a consumer deleted with a token in hand takes it along, and
-- between a look and a deletion it may get one.
-- KEYS  1 ready stream
-- ARGV  1 group  2 consumer that leaves ('' for none)  3 idle_ms: every other one that was silent for so long
-- Returns how many were deleted. Whoever has a token pending stays, until it has been taken over.
local gone = 0
if redis.call('EXISTS', KEYS[1]) == 0 then
  return gone -- the stream has vanished, and its consumers with it
end
for _, consumer in ipairs(redis.call('XINFO', 'CONSUMERS', KEYS[1], ARGV[1])) do
  local found = {}
  for i = 1, #consumer, 2 do
    found[consumer[i]] = consumer[i + 1]
  end
  if found['pending'] == 0 and (found['name'] == ARGV[2] or found['idle'] >= tonumber(ARGV[3])) then
    redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], found['name'])
    gone = gone + 1
  end
end
return gone
