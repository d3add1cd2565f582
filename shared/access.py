"""Who a client is and what it may do: API keys as they are stored, and the principal that connections carry.

Of a secret only its SHA-256 is kept. A slow hash protects guessable passwords; a secret of 256 random bits can't be
guessed however fast the hash is, and a slow one would make every wrong key cost the gateway 50 ms.
"""

import hashlib
import hmac
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, get_args

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, StringConstraints

from shared.settings import LimitSettings

Scope = Literal["transcribe", "listen"]
SCOPES: frozenset[str] = frozenset(get_args(Scope))

# Tells a key from a JWT, and a key that leaked into a public place from noise.
MARK = "scribe_"

KeyName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._-]{1,64}$")]


class Limits(BaseModel):
    """What one owner may use. None: what SCRIBE_LIMITS_… says; 0: no limit."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    sessions: int | None = Field(default=None, ge=0, description="at a time, on all gateways")
    audio_s_per_day: float | None = Field(default=None, ge=0, description="seconds of audio per UTC day")
    frame_bytes: int | None = Field(default=None, ge=0, description="largest message")
    messages_per_s: float | None = Field(default=None, ge=0, description="of a session; bursts are fine")
    session_s: float | None = Field(default=None, ge=0, description="longest session")

    def over(self, defaults: LimitSettings) -> "Limits":
        """These limits, with the defaults where nothing is said."""
        return Limits(
            **{
                name: getattr(defaults, name) if own is None else own
                for name, own in self.model_dump().items()
            }
        )


class Key(BaseModel):
    """An API key as it is stored. Several may have one name: that is how keys are rotated."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: KeyName = Field(description="the owner: its sessions and quotas are shared by keys of this name")
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    scopes: list[Scope] = Field(min_length=1)
    expires: AwareDatetime | None = Field(default=None, description="not valid from then on")
    limits: Limits = Limits()

    @classmethod
    def new(cls, secret: str, **fields: Any) -> "Key":
        """A key with this secret. Raises pydantic.ValidationError."""
        return cls(sha256=digest(secret), **fields)

    def fits(self, secret: str) -> bool:
        """Whether this is the key's secret; takes as long for a wrong one as for the right one."""
        return hmac.compare_digest(self.sha256, digest(secret))

    @property
    def expired(self) -> bool:
        return self.expires is not None and self.expires <= datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class Principal:
    """Who is behind a connection. `id` has its kind in front, so that a JWT can't pass for a key's owner."""

    id: str
    scopes: frozenset[str]
    limits: Limits

    def may_read(self, owner: str | None) -> bool:
        """Whether a session of this owner may be listened to."""
        return owner == self.id or "listen" in self.scopes


def digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def new_secret() -> tuple[str, str]:
    """(key id, secret) of a new key. The id is part of the secret, which makes finding the key one look-up."""
    key_id = secrets.token_hex(4)
    return key_id, f"{MARK}{key_id}_{secrets.token_urlsafe(32)}"


def id_in(secret: str) -> str | None:
    """The id of the key that a secret claims to belong to; None for what is no secret of ours."""
    key_id, _, rest = secret.removeprefix(MARK).partition("_")
    return key_id if secret.startswith(MARK) and key_id and rest else None
