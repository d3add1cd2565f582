"""Configuration. This module is the only reader of environment variables (prefix `SCRIBE_`)."""

import os
from pathlib import Path
from typing import Literal

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

# onnxruntime 1.29 and later send telemetry by default; set before anything imports it.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")


class RedisSettings(BaseSettings):
    """SCRIBE_REDIS_URL, SCRIBE_REDIS_PREFIX, …"""

    model_config = SettingsConfigDict(env_prefix="SCRIBE_REDIS_", frozen=True)

    url: str = Field(
        default="", description="see shared/topology/address.py; empty: start an embedded server", repr=False
    )
    prefix: str = Field(
        default="scribe", pattern=r"^[A-Za-z0-9_.:-]{1,64}$", description="of every key and channel"
    )
    partitions: int = Field(default=16, description="power of two, fixed when a deployment is created")
    sharded_pubsub: bool = Field(
        default=False, description="transcript channels in their partition's slot; for Cluster"
    )
    session_ttl_s: int = Field(default=3600, ge=1, description="how long a silent session's keys live")
    data_dir: Path | None = Field(
        default=None, description="where the embedded server keeps its AOF; none: memory only"
    )


class GatewaySettings(BaseSettings):
    """SCRIBE_GATEWAY_HOST, SCRIBE_GATEWAY_PORT, …"""

    model_config = SettingsConfigDict(env_prefix="SCRIBE_GATEWAY_", frozen=True)

    host: str = "127.0.0.1"
    port: int = Field(default=8080, ge=0, le=65535)
    backlog_chunks: int = Field(
        default=10, ge=1, description="undecoded chunks of a session before it is held back"
    )
    ring_s: float = Field(default=10.0, gt=0, description="audio a connection's ring buffer holds")
    frame_bytes: int = Field(default=1 << 20, description="largest WebSocket message taken")
    idle_s: float = Field(
        default=60.0, gt=0, description="a session whose client sends nothing for so long ends"
    )
    resume_s: float = Field(
        default=30.0, gt=0, description="how long a session waits for a client whose connection was lost"
    )
    keep_s: float = Field(
        default=30.0, ge=0, description="audio of a session kept to be sent again should Redis lose it"
    )
    drain_s: float = Field(default=10.0, description="how long shutdown waits for sessions to finish")
    containers: int = Field(
        default=32,
        ge=0,
        description="containers decoded at a time, each in a process of 25 MB; WAV needs none",
    )


class AuthSettings(BaseSettings):
    """SCRIBE_AUTH_KEYS_FILE, SCRIBE_AUTH_REQUIRED, …"""

    model_config = SettingsConfigDict(env_prefix="SCRIBE_AUTH_", frozen=True)

    keys_file: Path | None = Field(default=None, description="TOML with API keys; keys in Redis count too")
    required: bool = Field(
        default=False, description="let nobody in without credentials, even while no keys are configured"
    )
    origins: str = Field(
        default="", description="browser origins to let in besides the gateway's own, by blanks"
    )
    open_metrics: bool = Field(default=False, description="/metrics without a key when not on loopback")
    jwt_key_file: Path | None = Field(default=None, description="HS256 secret, or public key in PEM")
    jwt_algorithm: Literal["HS256", "RS256", "ES256"] = "RS256"
    jwt_audience: str = Field(default="", description="what `aud` must hold; required with a key file")
    jwt_issuer: str = Field(default="", description="what `iss` must be; empty: anything")


class LimitSettings(BaseSettings):
    """SCRIBE_LIMITS_QUEUE_S, SCRIBE_LIMITS_SESSIONS, … 0 means no limit."""

    model_config = SettingsConfigDict(env_prefix="SCRIBE_LIMITS_", frozen=True)

    queue_s: float = Field(
        default=3.0, ge=0, description="work waiting longer than this: the fleet takes no new sessions"
    )
    memory_share: float = Field(
        default=0.9, gt=0, le=1, description="of Redis' maxmemory; above it no new sessions"
    )
    gateway_sessions: int = Field(default=0, ge=0, description="sessions connected to one gateway")
    sessions: int = Field(default=0, ge=0, description="an owner's sessions at a time, on all gateways")
    audio_s_per_day: float = Field(default=0, ge=0, description="an owner's audio, by UTC days")
    frame_bytes: int = Field(default=0, ge=0, description="largest message")
    messages_per_s: float = Field(default=2000, ge=0, description="of a session; ten seconds' worth at once")
    session_s: float = Field(default=14_400, ge=0, description="longest session")


class ClientSettings(BaseSettings):
    """SCRIBE_KEY"""

    model_config = SettingsConfigDict(env_prefix="SCRIBE_", frozen=True)

    key: SecretStr | None = Field(default=None, description="what the tools show a gateway: API key or JWT")


class WorkerSettings(BaseSettings):
    """SCRIBE_WORKER_LEASE_S, SCRIBE_WORKER_DELIVERIES, …"""

    model_config = SettingsConfigDict(env_prefix="SCRIBE_WORKER_", frozen=True)

    lease_s: float = Field(
        default=2.0, gt=0, description="a token whose owner is silent for this long is taken over"
    )
    deliveries: int = Field(default=3, ge=1, description="attempts at a token before it is a dead letter")
    threads: int = Field(default=1, ge=1, description="threads of one inference")
    drain_s: float = Field(default=10.0, description="how long shutdown waits for the pass in flight")
    metrics_port: int = Field(default=0, description="0: no metrics port")


class LogSettings(BaseSettings):
    """SCRIBE_LOG_LEVEL, SCRIBE_LOG_JSON"""

    model_config = SettingsConfigDict(env_prefix="SCRIBE_LOG_", frozen=True)

    level: str = "INFO"
    json_lines: bool = Field(default=False, alias="SCRIBE_LOG_JSON")


def child_environment(**changes: str) -> dict[str, str]:
    """Give the environment for a child process: ours with `changes`."""
    return os.environ | changes
