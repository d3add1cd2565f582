"""Every Redis key and channel, by name. No other module spells one.

All keys of a session and the ready streams of its partition share the hash tag `{pNN}`: one Lua script can
update them together on Redis Cluster too. Session ids are ours (hex), so no user text reaches a hash tag.
"""

import binascii
import hashlib
from dataclasses import dataclass

STAGES = ("frontend", "acoustic", "decoder")

# What flows into each stage; the last stage's outputs are the events.
INPUT_OF = {"frontend": "audio", "acoustic": "speech", "decoder": "encoded"}


@dataclass(frozen=True, slots=True)
class Keys:
    prefix: str = "scribe"
    partitions: int = 16
    sharded: bool = False  # SCRIBE_REDIS_SHARDED_PUBSUB

    def partition(self, sid: str) -> int:
        """CRC16 (XMODEM, the one Redis Cluster uses) of the session id, modulo the partitions."""
        return binascii.crc_hqx(sid.encode(), 0) % self.partitions

    def _tag(self, partition: int) -> str:
        return f"{self.prefix}:{{p{partition:02d}}}"

    def _session(self, sid: str, what: str) -> str:
        return f"{self._tag(self.partition(sid))}:s:{sid}:{what}"

    def meta(self, sid: str) -> str:
        """Hash: options, status, owner, events and lasting (counts), resume (hash of the token), holder, shown, created_ms."""
        return self._session(sid, "meta")

    def inputs(self, sid: str, stage: str) -> str:
        """Stream of what the stage consumes: audio, speech or encoded; entry id `<seq>-0`."""
        return self._session(sid, INPUT_OF[stage])

    def state(self, sid: str, stage: str) -> str:
        """Hash: seq (done), fed (newest input), keep (oldest input needed), token (out), version (token and seq of its commit), blob.

        The frontend's also: at (where the client is after `fed`), over (its audio has ended).
        """
        return self._session(sid, f"state:{stage}")

    def events(self, sid: str) -> str:
        """Stream of transcript events, entry id `<event>-0`: e (its JSON), n (how many so far last), l (1 if it does)."""
        return self._session(sid, "events")

    def session_keys(self, sid: str) -> list[str]:
        stages = [f(sid, stage) for stage in STAGES for f in (self.inputs, self.state)]
        return [self.meta(sid), self.events(sid), *stages]

    def open_sessions(self, partition: int) -> str:
        """Sorted set: session -> when it is ended unless its client is heard of (Unix ms of the server's clock)."""
        return f"{self._tag(partition)}:open"

    def open_sessions_of(self, sid: str) -> str:
        return self.open_sessions(self.partition(sid))

    def ready(self, partition: int, stage: str) -> str:
        """Stream of work tokens with one consumer group, `workers`. Permanent."""
        return f"{self._tag(partition)}:ready:{stage}"

    def ready_of(self, sid: str, stage: str) -> str:
        return self.ready(self.partition(sid), stage)

    def dead(self, partition: int) -> str:
        """Stream of tokens given up on, with the reason. Trimmed and expiring."""
        return f"{self._tag(partition)}:dead"

    def channel(self, sid: str) -> str:
        """Pub/sub channel of a session's transcript events. Part of the public contract.

        A sharded one (SPUBLISH) has its partition's hash tag; that is how scripts tell it from others.
        """
        where = self._tag(self.partition(sid)) if self.sharded else self.prefix
        return f"{where}:transcripts:{sid}"

    def workers(self, stage: str) -> str:
        """Hash worker -> heartbeat JSON; the key expires when nobody beats."""
        return f"{self.prefix}:workers:{stage}"

    def deployment(self) -> str:
        """Hash with what all processes must agree on (partitions, version). Permanent."""
        return f"{self.prefix}:deployment"

    def probe(self) -> str:
        """String with a short TTL: written to see whether Redis takes writes."""
        return f"{self.prefix}:probe"

    def access(self) -> str:
        """Hash key id -> API key as JSON, its secret hashed. Permanent."""
        return f"{self.prefix}:access"

    def seats(self, owner: str) -> str:
        """Sorted set of an owner's connected sessions by the Unix ms their lease ends."""
        return f"{self._use(owner)}:seats"

    def heard(self, owner: str, day: str) -> str:
        """Counter of the milliseconds of audio an owner has sent that day (UTC)."""
        return f"{self._use(owner)}:heard:{day}"

    def _use(self, owner: str) -> str:
        # Hashed, because a token's subject is text of others: braces in it would choose the slot.
        return f"{self.prefix}:use:{hashlib.sha256(owner.encode()).hexdigest()[:32]}"

    def permanent(self) -> set[str]:
        """The only keys that have no TTL."""
        ready = {self.ready(p, stage) for p in range(self.partitions) for stage in STAGES}
        return ready | {self.deployment(), self.access()}
