"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677) as Kafka speaks them, without I/O (docs/adr/0012).

Kafka's reading of the RFCs, of ``org.apache.kafka.common.security.scram.internals``: names and passwords are UTF-8
without SASLprep, there is no channel binding (``n``), an authorization id must equal the name, and at least 4,096
iterations are needed.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import secrets
from enum import Enum
from typing import NamedTuple

#: ``ScramMechanism.minIterations``, of both mechanisms.
ITERATIONS_MIN = 4096
#: A server that asks for more would keep a client computing (about half a second for this many).
ITERATIONS_MAX = 1_000_000
_SALT_BYTES_MAX = 1024
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


class ScramMechanism(Enum):
    """Kafka's name, which is also the key of a user's credential in ``/config/users``."""

    SHA_256 = "SCRAM-SHA-256"
    SHA_512 = "SCRAM-SHA-512"

    @property
    def hash(self) -> str:
        return "sha256" if self is ScramMechanism.SHA_256 else "sha512"

    @property
    def size(self) -> int:
        """Length of keys and proofs, bytes."""
        return hashlib.new(self.hash).digest_size


class ScramError(Exception):
    """The exchange failed. The message is for our log: it may tell what the other side must not learn."""


class ScramCredential(NamedTuple):
    """What a server stores of a password. ``salt``, ``stored_key`` and ``server_key`` are raw bytes."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return f"ScramCredential(iterations={self.iterations})"


def parse_credential(mechanism: ScramMechanism, text: str) -> ScramCredential:
    """``salt=...,stored_key=...,server_key=...,iterations=...`` in base64, as ``ScramCredentialUtils`` writes it.

    Raises ValueError, whose message has nothing of the credential.
    """
    found = dict(part.partition("=")[::2] for part in text.split(",", 4))
    if found.keys() != {"salt", "stored_key", "server_key", "iterations"}:
        raise ValueError("must have salt, stored_key, server_key and iterations, separated by commas")
    number = found["iterations"]
    if not re.fullmatch(r"[0-9]{1,9}", number) or not ITERATIONS_MIN <= int(number) <= ITERATIONS_MAX:
        raise ValueError(f"iterations must be a number from {ITERATIONS_MIN} to {ITERATIONS_MAX}")
    keys = {name: _unbase64(found[name]) for name in ("salt", "stored_key", "server_key")}
    for name in ("stored_key", "server_key"):
        if len(keys[name]) != mechanism.size:
            raise ValueError(f"{name} must be {mechanism.size} bytes in base64")
    if not 1 <= len(keys["salt"]) <= _SALT_BYTES_MAX:
        raise ValueError(f"salt must be 1 to {_SALT_BYTES_MAX} bytes in base64")
    return ScramCredential(keys["salt"], keys["stored_key"], keys["server_key"], int(number))


def format_credential(credential: ScramCredential) -> str:
    """The text that ``parse_credential`` reads."""
    salt, stored, server = (base64.b64encode(part).decode() for part in credential[:3])
    return f"salt={salt},stored_key={stored},server_key={server},iterations={credential.iterations}"


def make_credential(
    mechanism: ScramMechanism, password: str, iterations: int = ITERATIONS_MIN, salt: bytes | None = None
) -> ScramCredential:
    """The credential of a password. Takes about 1 ms per 2,000 iterations."""
    salt = _kafka_salt(secrets.token_bytes(32)) if salt is None else salt
    _, stored_key, server_key = _keys(mechanism, password, salt, iterations)
    return ScramCredential(salt, stored_key, server_key, iterations)


def credential_of_salted(
    mechanism: ScramMechanism, salt: bytes, salted_password: bytes, iterations: int
) -> ScramCredential:
    """The credential of a password that a client has salted already (``ScramFormatter.generateCredential``)."""
    _, stored_key, server_key = _keys_of_salted(mechanism, salted_password)
    return ScramCredential(salt, stored_key, server_key, iterations)


def password_matches(mechanism: ScramMechanism, credential: ScramCredential, password: str) -> bool:
    """Whether this is the password of a credential; takes as long as making one."""
    _, stored_key, _ = _keys(mechanism, password, credential.salt, credential.iterations)
    return hmac.compare_digest(stored_key, credential.stored_key)


class Decoys:
    """Credentials of users who do not exist: alike in form, and the same for a name each time, so that the exchange
    with an unknown user cannot be told from one with a wrong password. Each process draws its own.

    A user whose iterations are not Kafka's default of 4,096 can still be told from an unknown one.
    """

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(32)

    def credential(self, mechanism: ScramMechanism, name: str) -> ScramCredential:
        salt, stored, server = (
            hmac.digest(self._secret, f"{mechanism.value}\0{part}\0{name}".encode(), "sha512")
            for part in ("salt", "stored", "server")
        )
        size = mechanism.size
        return ScramCredential(_kafka_salt(salt), stored[:size], server[:size], ITERATIONS_MIN)


class ClientFirst(NamedTuple):
    """A client's first message. ``bare``: the part without the header; ``token``: a delegation token is meant."""

    name: str
    authorization_id: str
    nonce: str
    header: str
    bare: str
    token: bool


def read_client_first(message: bytes) -> ClientFirst:
    """``n,[a=authzid],n=name,r=nonce[,extensions]``. Raises ScramError."""
    parts = _text(message).split(",")
    # A third field that begins with "m=" would be a mandatory extension, which none knows.
    if len(parts) < 4 or parts[0] != "n" or not parts[2].startswith("n=") or not parts[3].startswith("r="):
        raise ScramError("the client's first message is malformed")
    if parts[1] and not parts[1].startswith("a="):
        raise ScramError("the client's first message has no proper authorization id")
    name, nonce = _unescaped(parts[2][2:]), parts[3][2:]
    if not name or not re.fullmatch(r"[\x21-\x7e]+", nonce):
        raise ScramError("the client's first message has no name or no proper nonce")
    authorization_id = _unescaped(parts[1][2:])
    token = any(part.lower() == "tokenauth=true" for part in parts[4:])
    return ClientFirst(name, authorization_id, nonce, ",".join(parts[:2]) + ",", ",".join(parts[2:]), token)


class ScramServer:
    """The server's side of one exchange, after the client's first message. ``challenge``: the answer to that message.

    ``credential`` None: no such user. The exchange goes on with a decoy and fails at its end.
    """

    def __init__(
        self,
        mechanism: ScramMechanism,
        first: ClientFirst,
        credential: ScramCredential | None,
        decoys: Decoys,
        nonce: str | None = None,
    ) -> None:
        self._mechanism, self._first = mechanism, first
        self._known = credential is not None and not first.token
        self._credential = (
            credential if credential is not None and self._known else decoys.credential(mechanism, first.name)
        )
        self._nonce = first.nonce + (nonce or _nonce())
        salt = base64.b64encode(self._credential.salt).decode()
        self._challenge = f"r={self._nonce},s={salt},i={self._credential.iterations}"

    @property
    def challenge(self) -> bytes:
        return self._challenge.encode()

    def finish(self, message: bytes) -> bytes:
        """The answer to the client's final message: it proves that we know the credential. Raises ScramError."""
        without_proof, separator, proof_text = _text(message).rpartition(",p=")
        fields = without_proof.split(",")
        if not separator or len(fields) < 2 or not fields[0].startswith("c="):
            raise ScramError("the client's final message is malformed")
        if _unbase64_message(fields[0][2:]) != self._first.header.encode():
            raise ScramError("the client's final message has another header than its first one")
        if not hmac.compare_digest(fields[1].encode(), f"r={self._nonce}".encode()):
            raise ScramError("the client's final message has another nonce")
        signed = f"{self._first.bare},{self._challenge},{without_proof}".encode()
        stored_key = self._credential.stored_key
        proof = _unbase64_message(proof_text)
        signature = hmac.digest(stored_key, signed, self._mechanism.hash)
        # A proof of another length cannot be right, but is compared like any other.
        key = _xor(proof.ljust(len(signature), b"\0")[: len(signature)], signature)
        matches = hmac.compare_digest(hashlib.new(self._mechanism.hash, key).digest(), stored_key)
        authorized = self._first.authorization_id in ("", self._first.name)
        if not (matches and self._known and len(proof) == len(signature) and authorized):
            raise ScramError("unknown user, wrong password, or an authorization id other than the name")
        answer = hmac.digest(self._credential.server_key, signed, self._mechanism.hash)
        return b"v=" + base64.b64encode(answer)


class ScramClient:
    """The client's side of one exchange. ``first``: its first message."""

    def __init__(self, mechanism: ScramMechanism, name: str, password: str, nonce: str | None = None) -> None:
        self._mechanism, self._password = mechanism, password
        self._nonce = nonce or _nonce()
        self._bare = f"n={_escaped(name)},r={self._nonce}"
        self._server_signature = b""

    @property
    def first(self) -> bytes:
        return f"n,,{self._bare}".encode()

    def final(self, challenge: bytes) -> bytes:
        """The final message. Computes as long as the server asks for, at most half a second. Raises ScramError."""
        fields = _text(challenge).split(",")
        if len(fields) < 3 or [field[:2] for field in fields[:3]] != ["r=", "s=", "i="]:
            raise ScramError("the server's first message is malformed")
        nonce, salt, number = (field[2:] for field in fields[:3])
        if not nonce.startswith(self._nonce) or len(nonce) == len(self._nonce):
            raise ScramError("the server's nonce does not extend ours")
        if not re.fullmatch(r"[0-9]{1,9}", number) or not ITERATIONS_MIN <= int(number) <= ITERATIONS_MAX:
            raise ScramError(
                f"the server asks for {number[:20]} iterations: {ITERATIONS_MIN} to {ITERATIONS_MAX} are allowed"
            )
        raw_salt = _unbase64_message(salt)
        client_key, stored_key, server_key = _keys(self._mechanism, self._password, raw_salt, int(number))
        without_proof = f"c={base64.b64encode(b'n,,').decode()},r={nonce}"
        signed = f"{self._bare},{challenge.decode()},{without_proof}".encode()
        signature = hmac.digest(stored_key, signed, self._mechanism.hash)
        self._server_signature = hmac.digest(server_key, signed, self._mechanism.hash)
        return f"{without_proof},p={base64.b64encode(_xor(client_key, signature)).decode()}".encode()

    def verify(self, answer: bytes) -> None:
        """Raises ScramError unless the server proved that it knows our credential."""
        kind, _, value = _text(answer).split(",")[0].partition("=")
        if kind == "e":
            raise ScramError(f"the server refused: {value[:200]!r}")
        sent = _unbase64_message(value) if kind == "v" else b""
        if not self._server_signature or not hmac.compare_digest(sent, self._server_signature):
            raise ScramError("the server could not prove that it knows our credential")


def _keys(
    mechanism: ScramMechanism, password: str, salt: bytes, iterations: int
) -> tuple[bytes, bytes, bytes]:
    """ClientKey, StoredKey and ServerKey of RFC 5802."""
    return _keys_of_salted(
        mechanism, hashlib.pbkdf2_hmac(mechanism.hash, password.encode(), salt, iterations)
    )


def _keys_of_salted(mechanism: ScramMechanism, salted: bytes) -> tuple[bytes, bytes, bytes]:
    client_key = hmac.digest(salted, b"Client Key", mechanism.hash)
    stored_key = hashlib.new(mechanism.hash, client_key).digest()
    return client_key, stored_key, hmac.digest(salted, b"Server Key", mechanism.hash)


def _nonce() -> str:
    return secrets.token_urlsafe(24)


def _kafka_salt(entropy: bytes) -> bytes:
    """130 bits as text in base 36, which is how Kafka makes salts (``ScramFormatter.secureRandomBytes``)."""
    number = int.from_bytes(entropy[:17]) >> 6
    digits = []
    while number:
        number, digit = divmod(number, 36)
        digits.append(_DIGITS[digit])
    return "".join(reversed(digits)).encode()


def _text(message: bytes) -> str:
    """A message as text; names may hold any UTF-8."""
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise ScramError("the message is not UTF-8") from None


def _escaped(name: str) -> str:
    return name.replace("=", "=3D").replace(",", "=2C")


def _unescaped(text: str) -> str:
    if not re.fullmatch(r"(?:[^=\0]|=2C|=3D)*", text):
        raise ScramError("a name has NUL, or '=' without 2C or 3D")
    return text.replace("=2C", ",").replace("=3D", "=")


def _unbase64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("has a value that is not base64") from None


def _unbase64_message(text: str) -> bytes:
    try:
        return _unbase64(text)
    except ValueError as error:
        raise ScramError(f"the message {error}") from None


def _xor(one: bytes, other: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(one, other, strict=True))
