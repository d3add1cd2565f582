-- Put back the events that Redis lost after the client had them (a failover or restart to an older copy), and make
-- the workers not tell them again.
-- KEYS  1 meta  2 events
-- ARGV  1 channel  2 ttl_ms  3 lasting: how many of the events told so far last
--       then the newest events told, oldest first, without holes: number, lasting count, 1 if it lasts itself (else 0), JSON
-- Returns the number of the last event; nothing is changed when the stream holds what was told. nil: no such session.
-- Workers may have computed some of it again, under numbers that the client knows otherwise: what is new to it among that
-- follows under new numbers, and is published once more.
if redis.call('EXISTS', KEYS[1]) == 0 then
  return nil
end
local lasting, told = tonumber(ARGV[3]), {}
for i = 4, #ARGV, 4 do
  told[#told + 1] = {id = ARGV[i] .. '-0', number = tonumber(ARGV[i]), n = ARGV[i + 1], l = ARGV[i + 2], e = ARGV[i + 3]}
end
local count = tonumber(redis.call('HGET', KEYS[1], 'events') or '0')
local differs
for i, event in ipairs(told) do
  local there = redis.call('XRANGE', KEYS[2], event.id, event.id)[1]
  if not there or there[2][2] ~= event.e then
    differs = i
    break
  end
end
if not differs then
  return count
end

local fresh = {}
for _, entry in ipairs(redis.call('XRANGE', KEYS[2], told[differs].id, '+')) do
  local fields = entry[2]
  if fields[6] == '1' and tonumber(fields[4]) > lasting then
    fresh[#fresh + 1] = {n = fields[4], l = fields[6], e = fields[2]}
  end
end
-- Made anew: a stream takes no entry below the highest it ever had (7.0 and later remember deleted ones, too).
local before = redis.call('XRANGE', KEYS[2], '-', (told[differs].number - 1) .. '-0')
redis.call('DEL', KEYS[2])
for _, entry in ipairs(before) do
  redis.call('XADD', KEYS[2], entry[1], unpack(entry[2]))
end
for i = differs, #told do
  redis.call('XADD', KEYS[2], told[i].id, 'e', told[i].e, 'n', told[i].n, 'l', told[i].l)
end
count = told[#told].number
local published = {}
for _, event in ipairs(fresh) do
  count = count + 1
  local json = string.gsub(event.e, '^{"event":%d+', '{"event":' .. count)
  redis.call('XADD', KEYS[2], count .. '-0', 'e', json, 'n', event.n, 'l', event.l)
  published[#published + 1] = json
end
redis.call('HSET', KEYS[1], 'events', count, 'shown', lasting)
redis.call('PEXPIRE', KEYS[1], ARGV[2])
redis.call('PEXPIRE', KEYS[2], ARGV[2])
for _, json in ipairs(published) do
  redis.call(string.find(ARGV[1], '{', 1, true) and 'SPUBLISH' or 'PUBLISH', ARGV[1], json) -- sharded
end
return count
