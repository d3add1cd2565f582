"""JSON Web Tokens of somebody else's identity service, checked by PyJWT.

Exactly one algorithm is accepted, and the key must be of its kind: a token can't choose `none`, nor have a public key
taken for an HMAC secret.
"""

from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from shared.access import SCOPES, Limits, Principal
from shared.errors import Misconfigured, Unauthorized
from shared.settings import AuthSettings

# Clocks of two machines.
_LEEWAY_S = 10
_MIN_SECRET_BYTES = 32  # RFC 7518, section 3.2
_MIN_RSA_BITS = 2048
_MAX_SUBJECT = 256


class TokenReader:
    """Raises Misconfigured, saying what to change, when the key does not suit the algorithm."""

    def __init__(self, settings: AuthSettings) -> None:
        if not settings.jwt_audience:
            raise Misconfigured(
                "SCRIBE_AUTH_JWT_AUDIENCE is missing: without it a token made for another service would open this one"
            )
        self._settings = settings
        self._key = _key(settings)

    def principal(self, token: str, limits: Limits) -> Principal:
        """Raises Unauthorized, saying which claim is wrong and never what is in the token."""
        try:
            claims: dict[str, Any] = jwt.decode(
                token,
                self._key,
                algorithms=[self._settings.jwt_algorithm],
                audience=self._settings.jwt_audience,
                issuer=self._settings.jwt_issuer or None,
                leeway=_LEEWAY_S,
                options={"require": ["exp", "aud", "sub"]},
            )
        except jwt.ExpiredSignatureError:
            raise Unauthorized("the token has expired: get a new one") from None
        except jwt.InvalidAudienceError:
            raise Unauthorized(f"the token is not for {self._settings.jwt_audience!r} (claim aud)") from None
        except jwt.MissingRequiredClaimError as error:
            raise Unauthorized(f"the token lacks the claim {error.claim}") from None
        except jwt.ImmatureSignatureError:
            raise Unauthorized("the token is not valid yet (claim nbf)") from None
        except jwt.PyJWTError:
            raise Unauthorized("the token is not valid") from None
        if not 0 < len(claims["sub"]) <= _MAX_SUBJECT:
            raise Unauthorized(f"the token's sub must have 1 to {_MAX_SUBJECT} characters")
        return Principal(f"jwt:{claims['sub']}", _scopes(claims.get("scope", "")), limits)


def _scopes(claim: object) -> frozenset[str]:
    """As in RFC 8693: words by blanks. Other services' scopes in it are ignored."""
    words = claim.split() if isinstance(claim, str) else []
    return SCOPES.intersection(words)


def _key(settings: AuthSettings) -> Any:
    file, algorithm = settings.jwt_key_file, settings.jwt_algorithm
    assert file is not None
    try:
        raw = file.read_bytes()
    except OSError as error:
        raise Misconfigured(f"cannot read SCRIBE_AUTH_JWT_KEY_FILE {file}: {error.strerror}") from error
    if algorithm == "HS256":
        secret = raw.strip()
        if secret.startswith(b"-----BEGIN") or len(secret) < _MIN_SECRET_BYTES:
            raise Misconfigured(
                f"{file} is no secret for HS256: at least {_MIN_SECRET_BYTES} random bytes, and no PEM"
            )
        return secret
    try:
        key = load_pem_public_key(raw)
    except ValueError as error:
        raise Misconfigured(f"{file} holds no public key in PEM, which {algorithm} needs") from error
    if algorithm == "RS256" and not (isinstance(key, RSAPublicKey) and key.key_size >= _MIN_RSA_BITS):
        raise Misconfigured(f"{file}: RS256 needs an RSA key of at least {_MIN_RSA_BITS} bits")
    if algorithm == "ES256" and not (
        isinstance(key, EllipticCurvePublicKey) and isinstance(key.curve, SECP256R1)
    ):
        raise Misconfigured(f"{file}: ES256 needs a key on the curve P-256")
    return key
