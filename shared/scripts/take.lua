-- Take the token that has waited longest, of the preferred ready streams or else of the others.
-- By age and not by turns of the streams: a stream with four sessions would get no more than one with a single session,
-- and under overload its sessions starve. Ended tokens are deleted, so a stream holds little but what waits.
-- KEYS  ready streams (all on one server; on Cluster the caller passes one partition at a time)
-- ARGV  1 group  2 consumer  3 how many of the keys, from the first on, are preferred
--       4 ms that a token must have waited to be taken from one of the others: its own worker may be about to
-- Returns {index of the stream, token, fields, ms it has waited by this server's clock} or nil.
-- The numbers of a stream never go back. After the server's clock has, those of a stream with later ones stand still and
-- say nothing about age: until the clock has caught up, streams are then picked at random, or that one would starve.
local function last_delivered(key)
  for _, group in ipairs(redis.call('XINFO', 'GROUPS', key)) do
    local found = {}
    for i = 1, #group, 2 do
      found[group[i]] = group[i + 1]
    end
    if found['name'] == ARGV[1] then
      return found['last-delivered-id']
    end
  end
  return '0-0' -- no such group: reading from it says so
end

local function older(a, b)
  local a_ms, a_seq = string.match(a, '(%d+)-(%d+)')
  local b_ms, b_seq = string.match(b, '(%d+)-(%d+)')
  if a_ms ~= b_ms then
    return tonumber(a_ms) < tonumber(b_ms)
  end
  return tonumber(a_seq) < tonumber(b_seq)
end

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local function oldest(first, last, patience)
  local index, id
  local found, set_back = {}, false
  for i = first, last do
    if redis.call('XLEN', KEYS[i]) > 0 then
      local waiting = redis.call('XRANGE', KEYS[i], '(' .. last_delivered(KEYS[i]), '+', 'COUNT', 1)[1]
      local age = waiting and now - tonumber(string.match(waiting[1], '%d+'))
      if waiting and age < 0 then
        set_back = true
      elseif waiting and age < patience then
        waiting = nil
      end
      if waiting and (not id or older(waiting[1], id)) then
        index, id = i, waiting[1]
      end
      if waiting then
        found[#found + 1] = i
      end
    end
  end
  return set_back and found[1 + time[2] % #found] or index
end

local preferred = tonumber(ARGV[3])
local index = oldest(1, preferred, 0) or oldest(preferred + 1, #KEYS, tonumber(ARGV[4]))
if not index then
  return nil
end
local reply = redis.call('XREADGROUP', 'GROUP', ARGV[1], ARGV[2], 'COUNT', 1, 'STREAMS', KEYS[index], '>')
local entry = reply[1][2][1]
return {index, entry[1], entry[2], math.max(0, now - tonumber(string.match(entry[1], '%d+')))}
