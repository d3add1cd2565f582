"""Keys, tokens, origins and rates, without a server."""

from contextlib import nullcontext
from datetime import UTC, datetime, timedelta

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from gateway.bucket import Bucket
from gateway.jwt_access import TokenReader
from gateway.keyring import read_key_file
from gateway.origin import check_origin, is_loopback
from gateway.refusal import response_of
from gateway.server import HEADER_BYTES, HEADERS, TARGET_BYTES, excess
from shared.access import Key, Limits, id_in, new_secret
from shared.errors import Forbidden, Misconfigured, RedisUnavailable, Unauthorized
from shared.settings import AuthSettings, LimitSettings

AUDIENCE = "streamscribe"
SECRET = "s" * 32


class TestKeys:
    def test_a_key_fits_its_secret_and_no_other_and_keeps_only_a_hash(self):
        key_id, secret = new_secret()
        key = Key.new(secret, name="acme", scopes=["transcribe"])

        assert key.fits(secret)
        assert not key.fits(new_secret()[1])
        assert id_in(secret) == key_id
        assert secret not in key.model_dump_json()
        assert len(secret.split("_", 2)[2]) == 43  # 256 bits

    @pytest.mark.parametrize("text", ["", "scribe_", "scribe_ab", "scribe__x", "a.b.c", "Scribe_ab_c"])
    def test_what_is_no_secret_of_ours_names_no_key(self, text):
        assert id_in(text) is None

    def test_a_key_is_over_from_its_expiry_on(self):
        now = datetime.now(UTC)
        old, new = (
            Key.new("x", name="a", scopes=["listen"], expires=now + timedelta(seconds=s)) for s in (-1, 60)
        )

        assert (old.expired, new.expired) == (True, False)

    def test_limits_that_a_key_does_not_set_are_the_deployments(self):
        limits = Limits(sessions=0, frame_bytes=10).over(LimitSettings(sessions=7, session_s=9))

        assert (limits.sessions, limits.frame_bytes, limits.session_s) == (0, 10, 9)

    @pytest.mark.parametrize(
        ("text", "named"),
        [
            ("keys = [", "no TOML"),
            ('[keys.a]\nname="x"\nscopes=["listen"]', "keys.a.sha256"),
            (f'[keys.a]\nname="x"\nsha256="{"0" * 64}"\nscopes=["shout"]', "keys.a.scopes.0"),
            (f'[keys.a]\nname="x"\nsha256="{"0" * 64}"\nscopes=["listen"]\nsecret="hush"', "keys.a.secret"),
            (f'[keys.a]\nname="x"\nsha256="{"0" * 64}"\nscopes=[]', "keys.a.scopes"),
        ],
    )
    def test_a_broken_key_file_is_explained_without_its_values(self, tmp_path, text, named):
        file = tmp_path / "keys.toml"
        file.write_text(text)

        with pytest.raises(Misconfigured, match=str(file)) as caught:
            read_key_file(file)

        assert named in str(caught.value)
        assert "hush" not in str(caught.value)


def claims(**changes):
    soon = datetime.now(UTC) + timedelta(minutes=5)
    given = {"sub": "ann", "aud": AUDIENCE, "exp": soon, "scope": "transcribe other"} | changes
    return {name: value for name, value in given.items() if value is not None}


@pytest.fixture(scope="module")
def rsa_key():
    return rsa.generate_private_key(65537, 2048)


def public_pem(key) -> bytes:
    return key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def reader(tmp_path, algorithm, key: bytes, **settings) -> TokenReader:
    file = tmp_path / "key"
    file.write_bytes(key)
    given = {"jwt_audience": AUDIENCE, "jwt_key_file": file, "jwt_algorithm": algorithm} | settings
    return TokenReader(AuthSettings(**given))


class TestTokens:
    @pytest.fixture
    def hs256(self, tmp_path):
        return reader(tmp_path, "HS256", SECRET.encode())

    def test_a_tokens_subject_is_the_owner_and_strange_scopes_are_ignored(self, hs256):
        who = hs256.principal(jwt.encode(claims(), SECRET, "HS256"), Limits())

        assert (who.id, who.scopes) == ("jwt:ann", {"transcribe"})

    @pytest.mark.parametrize(
        ("changes", "named"),
        [
            ({"exp": datetime.now(UTC) - timedelta(minutes=1)}, "expired"),
            ({"exp": None}, "claim exp"),
            ({"aud": "other"}, "claim aud"),
            ({"aud": None}, "claim aud"),
            ({"sub": None}, "claim sub"),
            ({"sub": ""}, "sub"),
            ({"sub": "x" * 300}, "sub"),
            ({"nbf": datetime.now(UTC) + timedelta(days=1)}, "claim nbf"),
        ],
    )
    def test_a_token_with_a_wrong_claim_is_refused_by_name(self, hs256, changes, named):
        with pytest.raises(Unauthorized, match=named):
            hs256.principal(jwt.encode(claims(**changes), SECRET, "HS256"), Limits())

    def test_an_issuer_that_is_set_must_be_the_tokens(self, tmp_path):
        strict = reader(tmp_path, "HS256", SECRET.encode(), jwt_issuer="https://id.example.com")

        with pytest.raises(Unauthorized, match="iss"):
            strict.principal(jwt.encode(claims(), SECRET, "HS256"), Limits())
        assert strict.principal(jwt.encode(claims(iss="https://id.example.com"), SECRET, "HS256"), Limits())

    def test_unsigned_forged_and_torn_tokens_are_refused(self, hs256):
        good = jwt.encode(claims(), SECRET, "HS256")
        forged = jwt.encode(claims(), "t" * 32, "HS256")
        for token in (jwt.encode(claims(), "", "none"), forged, good[:-4], good + "x", "a.b.c", "", "é"):
            with pytest.raises(Unauthorized, match="not valid"):
                hs256.principal(token, Limits())

    def test_a_public_key_is_never_taken_for_a_shared_secret(self, tmp_path, rsa_key):
        """The classic: sign with HMAC, the public key as the secret."""
        import base64
        import hashlib
        import hmac
        import json

        def part(data: bytes) -> bytes:
            return base64.urlsafe_b64encode(data).rstrip(b"=")

        pem = public_pem(rsa_key)
        rs256 = reader(tmp_path, "RS256", pem)
        soon = {**claims(), "exp": int(claims()["exp"].timestamp())}
        text = (
            part(json.dumps({"alg": "HS256", "typ": "JWT"}).encode()) + b"." + part(json.dumps(soon).encode())
        )
        confused = text + b"." + part(hmac.digest(pem, text, hashlib.sha256))

        with pytest.raises(Unauthorized, match="not valid"):
            rs256.principal(confused.decode(), Limits())
        assert rs256.principal(jwt.encode(claims(), rsa_key, "RS256"), Limits()).id == "jwt:ann"

    def test_es256_works(self, tmp_path):
        key = ec.generate_private_key(ec.SECP256R1())
        es256 = reader(tmp_path, "ES256", public_pem(key))

        assert es256.principal(jwt.encode(claims(), key, "ES256"), Limits()).id == "jwt:ann"

    def test_a_key_that_does_not_suit_the_algorithm_is_refused_at_the_start(self, tmp_path, rsa_key):
        pem = public_pem(rsa_key)
        unsuitable = [
            ("HS256", pem, "no secret"),
            ("HS256", b"short", "32"),
            ("RS256", b"x" * 40, "PEM"),
            ("ES256", pem, "P-256"),
            ("RS256", public_pem(ec.generate_private_key(ec.SECP256R1())), "RSA"),
            ("RS256", public_pem(rsa.generate_private_key(65537, 1024)), "2048"),
        ]
        for algorithm, key, named in unsuitable:
            with pytest.raises(Misconfigured, match=named):
                reader(tmp_path, algorithm, key)

    def test_a_missing_audience_or_key_file_is_named(self, tmp_path):
        with pytest.raises(Misconfigured, match="SCRIBE_AUTH_JWT_AUDIENCE"):
            reader(tmp_path, "HS256", SECRET.encode(), jwt_audience="")
        with pytest.raises(Misconfigured, match="No such file"):
            reader(tmp_path, "HS256", SECRET.encode(), jwt_key_file=tmp_path / "none")


ALLOWED = frozenset({"https://app.example.com"})


@pytest.mark.parametrize(
    ("host", "origin", "on_loopback", "welcome"),
    [
        ("127.0.0.1:8080", None, True, True),
        ("localhost:8080", "http://localhost:3000", True, True),
        ("[::1]:8080", "http://127.0.0.1", True, True),
        ("127.0.0.1:8080", "https://evil.example", True, False),
        ("127.0.0.1:8080", "null", True, False),
        ("evil.example:8080", None, True, False),  # DNS rebinding
        ("evil.example", "http://evil.example", True, False),
        ("localhost.evil.example", None, True, False),
        ("127.0.0.1.evil.example", None, True, False),
        ("app.example.com", "https://app.example.com", True, True),  # a proxy on this machine
        (None, None, True, False),
        ("", None, True, False),
        ("scribe.example", None, False, True),
        ("scribe.example", "https://scribe.example", False, True),
        ("scribe.example:443", "https://scribe.example", False, True),
        ("scribe.example:8080", "http://scribe.example:8080", False, True),
        ("scribe.example:8080", "http://scribe.example:9090", False, False),
        ("scribe.example", "https://evil.example", False, False),
        ("scribe.example", "https://scribe.example.evil.example", False, False),
        ("scribe.example", "https://app.example.com", False, True),
        ("scribe.example", "http://app.example.com", False, False),
        ("scribe.example", "http://localhost:3000", False, False),
        ("scribe.example", "null", False, False),
        ("scribe.example", "http://[", False, False),
        (None, "", False, False),
    ],
)
def test_pages_of_strangers_are_refused_and_programs_are_not(host, origin, on_loopback, welcome):
    expected = nullcontext() if welcome else pytest.raises(Forbidden, match="SCRIBE_AUTH_ORIGINS")

    with expected:
        check_origin(host, origin, allowed=ALLOWED, on_loopback=on_loopback)


def test_which_addresses_are_loopback():
    here, elsewhere = (
        ["localhost", "127.0.0.1", "127.9.9.9", "::1", "[::1]"],
        ["0.0.0.0", "::", "10.0.0.1", ""],
    )

    assert all(map(is_loopback, here))
    assert not any(map(is_loopback, elsewhere))


def test_a_bucket_lets_a_burst_pass_and_then_the_rate():
    now = [0.0]
    bucket = Bucket(rate=2, burst=6, now_ms=lambda: now[0])

    burst = [bucket.take() for _ in range(7)]
    now[0] = 1000
    after_a_second = [bucket.take() for _ in range(3)]
    now[0] = 60_000
    rested = [bucket.take() for _ in range(7)]

    assert burst == [True] * 6 + [False]
    assert after_a_second == [True, True, False]
    assert rested == burst


def test_a_bucket_without_a_rate_is_endless():
    bucket = Bucket(rate=0, burst=0, now_ms=lambda: 0.0)

    assert all(bucket.take() for _ in range(1000))


@pytest.mark.parametrize(
    ("target", "headers", "status"),
    [
        (b"/v1/stream", [(b"host", b"x")] * HEADERS, 0),
        (b"/" + b"x" * TARGET_BYTES, [], 414),
        (b"/", [(b"a", b"b")] * (HEADERS + 1), 431),
        (b"/", [(b"a", b"b" * HEADER_BYTES)], 431),
        (b"/", [(b"a", b"b" * 6000)] * 3, 431),
    ],
)
def test_heads_have_a_size(target, headers, status):
    assert excess(target, headers) == status


def test_what_is_wrong_inside_is_not_told_outside():
    for error in (
        RedisUnavailable("redis.internal:6379 refused scribe:hush"),
        Misconfigured("WRONGPASS hush"),
    ):
        answer = response_of(error)

        assert b"hush" not in answer.body
        assert answer.status_code == (503 if error.retryable else 500)
