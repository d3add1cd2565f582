-- Read what a pass needs: for each stage of the chain its state and its inputs, in one consistent look. And mark the
-- token as begun: should its owner fall silent now, the pass may be what killed it (workers/tokens.py).
-- KEYS  1 ready stream  then per stage: state hash, input stream
-- ARGV  1 token  2 group  3 consumer  then per stage: version the worker has in its pool ('' for none)
-- Returns per stage {seq, fed, version, token, blob, entries}; nil when the token is not the current one.
-- A worker whose version is current gets no blob and only the inputs after seq; else all inputs kept back.
if redis.call('HGET', KEYS[2], 'token') ~= ARGV[1] then
  return nil
end
-- The number of deliveries is 1 for a token only taken. Nothing else here raises it; XCLAIM needs no memory.
redis.call('XCLAIM', KEYS[1], ARGV[2], ARGV[3], 0, ARGV[1], 'RETRYCOUNT', 2, 'JUSTID')
local stages = {}
for i = 1, (#KEYS - 1) / 2 do
  local h = redis.call('HMGET', KEYS[2 * i], 'seq', 'fed', 'version', 'token', 'keep')
  local seq, version = h[1] or '0', h[3] or ''
  local blob, first = '', tostring(tonumber(seq) + 1)
  if version ~= ARGV[i + 3] then
    blob = redis.call('HGET', KEYS[2 * i], 'blob') or ''
    first = h[5] or first
  end
  local entries = redis.call('XRANGE', KEYS[2 * i + 1], first .. '-0', '+')
  stages[i] = {tonumber(seq), tonumber(h[2] or '0'), version, h[4] or '', blob, entries}
end
return stages
