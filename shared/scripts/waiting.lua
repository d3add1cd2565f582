-- How long work has waited for a worker. Changes nothing.
-- KEYS  ready streams of one partition
-- ARGV  1 group
-- Returns for each stream the age in ms of the oldest token that no worker has taken, 0 when there is none.
-- Taken tokens do not count: a poison chunk or a dead worker's token says nothing about the load. Ages are on the server's
-- clock, which gave the tokens their ids.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local ages = {}
for i, key in ipairs(KEYS) do
  ages[i] = 0
  if redis.call('XLEN', key) > 0 then
    for _, group in ipairs(redis.call('XINFO', 'GROUPS', key)) do
      local found = {}
      for j = 1, #group, 2 do
        found[group[j]] = group[j + 1]
      end
      if found['name'] == ARGV[1] then
        local oldest = redis.call('XRANGE', key, '(' .. found['last-delivered-id'], '+', 'COUNT', 1)[1]
        ages[i] = oldest and math.max(0, now - tonumber(string.match(oldest[1], '%d+'))) or 0
      end
    end
  end
end
return ages
