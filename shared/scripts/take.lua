-- Take one token from the first ready stream that has one; the caller orders the streams by preference.
-- XREADGROUP's COUNT is per stream: one read over several could take more tokens than the worker can start.
-- KEYS  ready streams (all on one server; on Cluster the caller passes one partition at a time)
-- ARGV  1 group  2 consumer
-- Returns {index of the stream, token, fields} or nil.
for i, key in ipairs(KEYS) do
  local reply = redis.call('XREADGROUP', 'GROUP', ARGV[1], ARGV[2], 'COUNT', 1, 'STREAMS', key, '>')
  if reply and reply[1] then
    local entry = reply[1][2][1]
    return {i, entry[1], entry[2]}
  end
end
return nil
