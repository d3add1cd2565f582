"""Every Prometheus instrument, in base units. Labels are few: never a session id."""

from prometheus_client import Counter, Gauge, Histogram

_FINE = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1, 2, 5)

QUEUE = Histogram("scribe_queue_seconds", "A token's wait for a worker", ["stage"], buckets=_FINE)
STEP = Histogram("scribe_step_seconds", "A stage's own work in one pass", ["stage"], buckets=_FINE)
LOAD = Histogram("scribe_load_seconds", "Reading state and inputs for a pass", buckets=_FINE)
COMMIT = Histogram("scribe_commit_seconds", "The commit script's round trip", buckets=_FINE)
COMMITS = Counter("scribe_commits_total", "Commits by result", ["result"])
INPUTS = Counter("scribe_inputs_total", "Inputs processed", ["stage"])
RECLAIMED = Counter("scribe_reclaimed_total", "Tokens taken over from a silent owner", ["stage"])
DEAD = Counter("scribe_dead_letters_total", "Tokens given up on", ["stage"])
POOL = Counter("scribe_pool_lookups_total", "Hot states found in the worker's pool, or not", ["result"])

QUEUE_AGE = Gauge("scribe_queue_age_seconds", "How long the oldest waiting token has waited", ["stage"])
SESSIONS = Gauge("scribe_sessions", "Sessions connected to this gateway")
VIEWERS = Gauge("scribe_viewers", "WebSockets that read a session along at this gateway")
CHUNKS = Counter("scribe_chunks_total", "Chunks appended to audio streams")
REPEATED = Counter("scribe_repeated_chunks_total", "Chunks appended again after Redis had lost them")
EVENTS = Counter("scribe_events_total", "Events relayed to clients", ["type"])
LATENCY = Histogram("scribe_latency_seconds", "Chunk complete to its event at the gateway", buckets=_FINE)
RELAY = Histogram("scribe_relay_seconds", "Event committed to event at the gateway", buckets=_FINE)
REFILLS = Counter("scribe_refills_total", "Holes in a channel filled from the events stream")
REFUSED = Counter("scribe_refused_total", "Sessions or messages refused", ["code"])
ADVISED = Counter("scribe_advised_total", "Sessions told what their client probably does wrong", ["code"])
DROPPED = Counter("scribe_dropped_seconds_total", "Audio dropped and announced in gap events")
RESUBSCRIBED = Counter("scribe_resubscribed_total", "Channel connections that were made anew, deaf or lost")
MASTER_MOVED = Counter("scribe_redis_master_moved_total", "Failovers seen through Sentinel")
