"""`ApiKeys`: the API keys of a server's clients, read from a file or a variable, and kept as SHA-256 hashes."""

from __future__ import annotations

import hashlib
import hmac
import re
from pathlib import Path

from ..base.errors import InputError
from .settings import MAX_KEY, MAX_KEYS, check_size

KEY_VARIABLE = "ENGINE_API_KEY"
"""The environment variable that may hold one key."""
_HASHED = re.compile(r"sha256:([0-9a-fA-F]{64})")
_SCHEME = b"bearer "


class ApiKeys:
    """The keys that a server accepts. Without any key, it accepts every request."""

    def __init__(self, lines: list[str]):
        """lines: a key in each, or "sha256:" and the 64 hexadecimal digits of a key's hash; # begins a comment.

        Raises `InputError`.
        """
        keys = [line.strip() for line in lines]
        keys = [key for key in keys if key and not key.startswith("#")]
        check_size("the longest key", max(map(len, keys), default=0), MAX_KEY, "give a shorter one")
        if len(keys) > MAX_KEYS:
            raise InputError(f"there are {len(keys):,} keys, and at most {MAX_KEYS:,} are read")
        for i, key in enumerate(keys):
            if key.startswith("sha256:") and not _HASHED.fullmatch(key):
                raise InputError(f"key {i} begins with sha256: and has no 64 hexadecimal digits alone behind it; make "
                                 "them with: printf %s KEY | sha256sum | cut -d ' ' -f 1")
        self._hashes = [bytes.fromhex(match[1]) if (match := _HASHED.fullmatch(key)) else _hash(key.encode())
                        for key in keys]

    @classmethod
    def read(cls, path: str) -> ApiKeys:
        """Return the keys of a file of UTF-8 text, one a line; raises `InputError` for a file without a key."""
        try:
            text = Path(path).read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"--api-key-file: {path} cannot be read as UTF-8 text: {error}") from error
        keys = cls(text.splitlines())
        if not keys._hashes:
            raise InputError(f"--api-key-file: {path} has no key; write one a line, or leave the option out to serve "
                             "every client")
        return keys

    @classmethod
    def of(cls, path: str | None, variable: str | None) -> ApiKeys:
        """Return the keys of a file and the key of a variable; either may be None, for no file or an unset variable.

        Raises `InputError` for a file or a variable without a key, so that neither lets every client in.
        """
        keys = cls([]) if path is None else cls.read(path)
        if variable is not None:
            if not variable.strip() or variable.lstrip().startswith("#") or len(variable.splitlines()) > 1:
                raise InputError(f"the variable {KEY_VARIABLE} must have one key, which does not begin with #; unset "
                                 "it to serve without it, and give --api-key-file for several keys")
            try:
                keys._hashes += cls([variable])._hashes
            except UnicodeEncodeError:
                raise InputError(f"the variable {KEY_VARIABLE} is no UTF-8; set another key") from None
        return keys

    def owner(self, authorization: bytes) -> str | None:
        """Return a name for the sender of a header "Authorization: Bearer KEY"; None if the key is not accepted.

        authorization: the value of the header, b"" without it. The name is the first 12 hexadecimal digits of the key's
        hash; "" where no key is needed.
        """
        if not self._hashes:
            return ""
        is_bearer = authorization[: len(_SCHEME)].lower() == _SCHEME
        key_hash = _hash(authorization[len(_SCHEME) :].strip() if is_bearer else b"")
        owner = ""
        for accepted in self._hashes:       # never stop early, so that the time tells nothing about the place of a key
            if hmac.compare_digest(accepted, key_hash):
                owner = key_hash.hex()[:12]
        return owner or None


def _hash(key: bytes) -> bytes:
    """Return the 32 bytes of a key's SHA-256 hash."""
    return hashlib.sha256(key).digest()
