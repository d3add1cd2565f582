-- Commit one pass: the only write of a worker. All or nothing: everything is validated before the first write.
-- A pass ran a chain of one or more adjacent stages ("links"); the output of a link is the input of the next.
-- KEYS  1 ready of the first link  2 meta  3 events  then per link: state, input
--       then, when the last link's output goes to another worker: next state, next input, next ready
-- ARGV  1 token  2 group  3 session  4 ttl_ms  5 now_ms  6 channel  7 new status ('' for none)  8 links
--       9 per event: 1 when it lasts, 0 for a partial, 2 for a gap where Redis lost audio
--       then per link: old seq, new seq, keep, blob, output ('' for none), store output (0|1)
--       then the events: JSON objects without their number
-- Returns the number of the last event, or an error:
--   STALE token: another worker owns the session's stage (the fence);  STALE seq: state moved;
--   STALE chain: a fused link was not idle and caught up.
-- Order of writes: state and streams, events, tokens, acknowledge, publish. An acknowledged token always has its results
-- stored. A script is refused for lack of memory only before its first write, and the first one here needs none: while
-- chunks are refused, passes finish and free what they used.
-- The n-th lasting event of a session is the same however often it is computed. `shown` of them have reached the client
-- already (restore.lua, after Redis lost commits): they are not told again. But what was told of audio that is lost for good
-- is never computed again: from its gap on all is new.
local token, ttl, now = ARGV[1], ARGV[4], ARGV[5]
local links = tonumber(ARGV[8])
local function arg(link, i) return ARGV[9 + (link - 1) * 6 + i] end
local function state(link) return KEYS[2 + link * 2] end
local function input(link) return KEYS[3 + link * 2] end
local onward = {state = KEYS[4 + links * 2], input = KEYS[5 + links * 2], ready = KEYS[6 + links * 2]}

if redis.call('HGET', state(1), 'token') ~= token then
  return redis.error_reply('STALE token')
end
for link = 1, links do
  local h = redis.call('HMGET', state(link), 'seq', 'fed', 'token')
  if (h[1] or '0') ~= arg(link, 1) then
    return redis.error_reply('STALE seq')
  end
  if link > 1 and (h[3] or (h[2] or '0') ~= (h[1] or '0')) then
    return redis.error_reply('STALE chain')
  end
end

redis.call('PEXPIRE', KEYS[2], ttl)
local live = {}
for link = 1, links do
  -- With seq: tokens of two stages made in one millisecond have the same number, and a stage is committed with either.
  local version = token .. ':' .. arg(link, 2)
  redis.call('HSET', state(link), 'seq', arg(link, 2), 'keep', arg(link, 3), 'blob', arg(link, 4), 'version', version)
  local output = arg(link, 5)
  if output ~= '' then
    local to_state, to_input = onward.state, onward.input
    if link < links then
      to_state, to_input = state(link + 1), input(link + 1)
    end
    redis.call('HSET', to_state, 'fed', arg(link, 2))
    if arg(link, 6) == '1' then
      redis.call('XADD', to_input, arg(link, 2) .. '-0', 'p', output, 't', now)
    end
    live[#live + 1] = to_state
    live[#live + 1] = to_input
    local out = link == links and redis.call('HGET', to_state, 'token')
    -- out but gone: its stream was deleted, or restored from an older copy
    if link == links and (not out or #redis.call('XRANGE', onward.ready, out, out) == 0) then
      local next_token = redis.call('XADD', onward.ready, '*', 's', ARGV[3], 't', now)
      redis.call('HSET', to_state, 'token', next_token)
    end
  end
  redis.call('XTRIM', input(link), 'MINID', arg(link, 3) .. '-0')
  live[#live + 1] = state(link)
  live[#live + 1] = input(link)
end

local told = redis.call('HMGET', KEYS[2], 'events', 'lasting', 'shown')
local count, lasting, shown = tonumber(told[1] or '0'), tonumber(told[2] or '0'), tonumber(told[3] or '0')
local numbered, first = {}, 10 + links * 6
for i = first, #ARGV do
  local kind = tonumber(string.sub(ARGV[9], i - first + 1, i - first + 1))
  local lasts = math.min(kind, 1)
  lasting = (kind == 2 and math.max(lasting, shown) or lasting) + lasts
  if lasting >= shown + lasts then
    count = count + 1
    local json = '{"event":' .. count .. ',' .. string.sub(ARGV[i], 2)
    redis.call('XADD', KEYS[3], count .. '-0', 'e', json, 'n', lasting, 'l', lasts)
    numbered[#numbered + 1] = json
  end
end
if #ARGV >= first then
  redis.call('HSET', KEYS[2], 'events', count, 'lasting', lasting)
  live[#live + 1] = KEYS[3]
end
if ARGV[7] ~= '' then
  redis.call('HSET', KEYS[2], 'status', ARGV[7])
end

-- More input arrived meanwhile: a new token at the tail, so that no session starves the others.
if tonumber(redis.call('HGET', state(1), 'fed') or '0') > tonumber(arg(1, 2)) then
  local again = redis.call('XADD', KEYS[1], '*', 's', ARGV[3], 't', now)
  redis.call('HSET', state(1), 'token', again)
else
  redis.call('HDEL', state(1), 'token')
end
for _, key in ipairs(live) do
  redis.call('PEXPIRE', key, ttl)
end
redis.call('XACK', KEYS[1], ARGV[2], token)
redis.call('XDEL', KEYS[1], token)
for _, json in ipairs(numbered) do
  redis.call(string.find(ARGV[6], '{', 1, true) and 'SPUBLISH' or 'PUBLISH', ARGV[6], json) -- sharded
end
return count
