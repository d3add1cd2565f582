-- Take the token that has waited longest, of the preferred ready streams or else of the others.
-- By age and not by turns of the streams: a stream with four sessions would get no more than one with a single session,
-- and under overload its sessions starve. Ended tokens are deleted, so a stream holds little but what waits.
-- KEYS  ready streams (all on one server; on Cluster the caller passes one partition at a time)
-- ARGV  1 group  2 consumer  3 how many of the keys, from the first on, are preferred
-- Returns {index of the stream, token, fields} or nil.
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

local function oldest(first, last)
  local index, id
  for i = first, last do
    if redis.call('XLEN', KEYS[i]) > 0 then
      local waiting = redis.call('XRANGE', KEYS[i], '(' .. last_delivered(KEYS[i]), '+', 'COUNT', 1)[1]
      if waiting and (not id or older(waiting[1], id)) then
        index, id = i, waiting[1]
      end
    end
  end
  return index
end

local preferred = tonumber(ARGV[3])
local index = oldest(1, preferred) or oldest(preferred + 1, #KEYS)
if not index then
  return nil
end
local reply = redis.call('XREADGROUP', 'GROUP', ARGV[1], ARGV[2], 'COUNT', 1, 'STREAMS', KEYS[index], '>')
local entry = reply[1][2][1]
return {index, entry[1], entry[2]}
