-- A worker of one stage says that it takes work, by the server's clock: no step of any worker's clock makes it look dead.
-- KEYS  1 the stage's heartbeats
-- ARGV  1 worker  2 ttl_ms: forget a worker that was silent for so long  3 heartbeat: a JSON object without seen_ms
-- Returns how many workers are known.
-- The first write needs no memory, so a Redis that has none still takes heartbeats.
redis.call('PEXPIRE', KEYS[1], ARGV[2])
local time, known = redis.call('TIME'), 1
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local beats = redis.call('HGETALL', KEYS[1])
for i = 1, #beats, 2 do
  -- One from the future was written before the server's clock was set back.
  if math.abs(now - (cjson.decode(beats[i + 1]).seen_ms or 0)) > tonumber(ARGV[2]) then
    redis.call('HDEL', KEYS[1], beats[i])
  elseif beats[i] ~= ARGV[1] then
    known = known + 1
  end
end
redis.call('HSET', KEYS[1], ARGV[1], string.format('{"seen_ms":%.0f,', now) .. string.sub(ARGV[3], 2))
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return known
