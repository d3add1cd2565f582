-- The workers of one stage that were heard of lately, by the server's clock.
-- KEYS  1 the stage's heartbeats
-- ARGV  1 silent_ms: who was silent for longer is left out
-- Returns worker, heartbeat, worker, heartbeat …
local time, live = redis.call('TIME'), {}
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local beats = redis.call('HGETALL', KEYS[1])
for i = 1, #beats, 2 do
  if math.abs(now - (cjson.decode(beats[i + 1]).seen_ms or 0)) <= tonumber(ARGV[1]) then
    live[#live + 1] = beats[i]
    live[#live + 1] = beats[i + 1]
  end
end
return live
