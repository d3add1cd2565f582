"""Who gets in: the page a browser shows, the credentials of a client, and what they allow."""

import structlog
from starlette.requests import HTTPConnection

from gateway.jwt_access import TokenReader
from gateway.keyring import KeyRing
from gateway.origin import check_origin, is_loopback
from shared.access import SCOPES, Limits, Principal, Scope, id_in
from shared.errors import Forbidden, Unauthorized
from shared.redis_client import RedisClients
from shared.settings import AuthSettings, LimitSettings

log = structlog.get_logger()

# What a browser, which can't set headers, offers as subprotocols: `streamscribe.v1, bearer.<secret>`.
SUBPROTOCOL = "streamscribe.v1"
_BEARER = "bearer."
_HOW = "send `Authorization: Bearer KEY`"


class Door:
    """start ──> checking ──stop──> stopped."""

    def __init__(
        self, clients: RedisClients, settings: AuthSettings, limits: LimitSettings, host: str
    ) -> None:
        """`host`: the address that the gateway listens on. Raises Misconfigured."""
        self._settings = settings
        self._defaults = limits
        self._limits = Limits().over(limits)
        self._on_loopback = is_loopback(host)
        self._host = host
        self._ring = KeyRing(clients, settings.keys_file)
        self._tokens = TokenReader(settings) if settings.jwt_key_file else None
        self.origins = frozenset(settings.origins.split())

    @property
    def open(self) -> bool:
        """Whether anybody may come in."""
        return not (self._settings.required or self._ring.configured or self._tokens)

    async def start(self) -> None:
        await self._ring.start()
        if self.open and not self._on_loopback:
            log.warning(
                "OPEN_TO_EVERYBODY",
                listening_on=self._host,
                danger="no API keys are configured: whoever reaches this address may use the fleet",
                remedy="run `streamscribe keys add NAME`, or listen on 127.0.0.1",
            )

    def quiet(self) -> None:
        self._ring.quiet()

    async def stop(self, deadline_s: float = 0) -> None:
        await self._ring.stop(deadline_s)

    def check_page(self, client: HTTPConnection) -> None:
        """Raise Forbidden for a browser page of somebody else's."""
        check_origin(
            client.headers.get("host"),
            client.headers.get("origin"),
            allowed=self.origins,
            on_loopback=self._on_loopback,
        )

    def enter(
        self,
        client: HTTPConnection,
        scope: Scope | None,
        *,
        in_query: bool = False,
        secret: str | None = None,
    ) -> Principal:
        """The principal behind a request. Raises Unauthorized, or Forbidden without the scope.

        `in_query`: `?token=` counts too. Only for clients that can't do better: addresses end up in logs.
        `secret`: found where only the client's dialect looks; the Authorization header goes before it.
        """
        self.check_page(client)
        principal = self._principal(_credentials(client, in_query=in_query) or secret)
        if scope and scope not in principal.scopes:
            raise Forbidden(f"this key lacks the scope {scope!r}")
        return principal

    def may_see_metrics(self, client: HTTPConnection) -> None:
        """Raise Unauthorized or Forbidden."""
        self.check_page(client)
        if not (self._on_loopback or self._settings.open_metrics):
            self.enter(client, "listen")

    def _principal(self, secret: str | None) -> Principal:
        if self.open:
            return Principal("anonymous", SCOPES, self._limits)
        if secret is None:
            raise Unauthorized(f"this gateway wants an API key or token: {_HOW}")
        key_id = id_in(secret)
        if key_id is None and self._tokens:
            return self._tokens.principal(secret, self._limits)
        key = self._ring.find(key_id) if key_id else None
        if key is None or not key.fits(secret):
            raise Unauthorized("this key is not valid")
        if key.expired:
            raise Unauthorized("this key has expired or was revoked: ask for a new one")
        return Principal(f"key:{key.name}", frozenset(key.scopes), key.limits.over(self._defaults))


def offered_secret(client: HTTPConnection, prefix: str) -> str | None:
    """The rest of the first offered subprotocol that begins like this."""
    offered = (str(each) for each in client.scope.get("subprotocols", ()))
    return next((each.removeprefix(prefix) for each in offered if each.startswith(prefix)), None)


def _credentials(client: HTTPConnection, *, in_query: bool) -> str | None:
    if header := client.headers.get("authorization"):
        scheme, _, secret = header.partition(" ")
        if scheme.lower() not in {"bearer", "token"} or not secret.strip():
            raise Unauthorized(f"the Authorization header is none we know: {_HOW}")
        return secret.strip()
    if offered := offered_secret(client, _BEARER):
        return offered
    return client.query_params.get("token") if in_query else None
