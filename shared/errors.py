"""Every error StreamScribe raises on purpose.

ScribeError
├── BadInput          the client's fault: told to that client, never retried
│   ├── Silent        it said nothing for too long
│   ├── NoSession     it asked for one that is not there, or not its own
│   └── SessionOver   it went on sending after the session had ended or failed
│       └── Replaced  another connection has resumed its session
├── Unauthorized      the client's fault: no credentials, or none that are valid
├── Forbidden         the client's fault: known, but not allowed this
├── QuotaExceeded     the client's fault: more than its key allows; it may try again later
├── Overloaded        nobody's fault: the client may try again later
├── Misconfigured     the operator's fault: the message says what to change
├── RedisUnavailable  the infrastructure's fault: reconnect with backoff
├── SessionLost       the infrastructure's fault: Redis no longer knows the session; only a new one helps
├── Stale             nobody's fault: the fence refused a late commit; drop the result and count it
└── StageFailed       our fault: another worker tries again, a limited number of times
"""

from typing import ClassVar, Literal

Blame = Literal["client", "operator", "infrastructure", "us", "nobody"]


class ScribeError(Exception):
    """Base of the tree. `code` is stable and goes over the wire; the message is for people."""

    code: ClassVar[str] = "internal"
    retryable: ClassVar[bool] = False
    blame: ClassVar[Blame] = "us"

    def __init__(self, message: str = "", *, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class BadInput(ScribeError):
    code = "bad_input"
    blame = "client"


class Silent(BadInput):
    code = "silent"


class NoSession(BadInput):
    code = "no_session"


class SessionOver(BadInput):
    code = "session_over"


class Replaced(SessionOver):
    code = "session_replaced"


class Unauthorized(ScribeError):
    code = "unauthorized"
    blame = "client"


class Forbidden(ScribeError):
    code = "forbidden"
    blame = "client"


class QuotaExceeded(ScribeError):
    code = "quota_exceeded"
    retryable = True
    blame = "client"


class Overloaded(ScribeError):
    code = "overloaded"
    retryable = True
    blame = "nobody"


class Misconfigured(ScribeError):
    code = "misconfigured"
    blame = "operator"


class RedisUnavailable(ScribeError):
    code = "redis_unavailable"
    retryable = True
    blame = "infrastructure"


class SessionLost(ScribeError):
    code = "session_lost"
    blame = "infrastructure"


class Stale(ScribeError):
    code = "stale"
    blame = "nobody"


class StageFailed(ScribeError):
    code = "stage_failed"
    retryable = True
