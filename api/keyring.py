"""The keyring: the API's keys, in one file of the data folder that only its owner can read.

A key is `hr_<id>_<secret>`. Of the secret, which has 256 bits, only the SHA-256 is kept: there is
nothing to guess, so a slow hash would only slow down each request. The API reads a key's row at
each request, and so a key that is revoked opens nothing from then on.
"""

import hashlib
import json
import os
import re
import secrets
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from enum import Enum
from pathlib import Path

from api.errors import KeyExpired, KeyMissing, KeyRevoked, KeyUnknown
from api.grant import OWNER, Grant, Restriction, Scope
from headrace.clock import Clock
from headrace.errors import ConfigError

PREFIX = "hr_"
ID_BYTES, SECRET_BYTES = 6, 32
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
"""A name stands in log lines."""

BUSY_TIMEOUT_MS = 10_000

SCHEMA = """\
CREATE TABLE IF NOT EXISTS keys (
    id         TEXT PRIMARY KEY,
    name       TEXT NOT NULL,
    digest     BLOB NOT NULL CHECK (length(digest) = 32),
    scopes     TEXT NOT NULL,
    tables     TEXT,
    rate_per_s INTEGER CHECK (rate_per_s > 0),
    created_at TEXT NOT NULL,
    expires_at TEXT,
    revoked_at TEXT
) STRICT, WITHOUT ROWID"""

INSERT = """\
INSERT INTO keys (id, name, digest, scopes, tables, rate_per_s, created_at, expires_at)
VALUES (:id, :name, :digest, :scopes, :tables, :rate_per_s, :created_at, :expires_at)"""

FIND = "SELECT * FROM keys WHERE id = :id"

ALL = "SELECT * FROM keys ORDER BY created_at, id"

REVOKE = "UPDATE keys SET revoked_at = :at WHERE id = :id AND revoked_at IS NULL"


class State(Enum):
    """Whether a key opens anything."""

    VALID = "valid"
    EXPIRED = "expired"
    REVOKED = "revoked"


@dataclass(frozen=True, slots=True)
class Key:
    """A key, without its secret."""

    grant: Grant
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None

    def state(self, now: datetime) -> State:
        """Tell whether it opens anything."""
        if self.revoked_at is not None:
            return State.REVOKED
        expired = self.expires_at is not None and self.expires_at <= now
        return State.EXPIRED if expired else State.VALID


class Keyring:
    """The keys of one data folder. The API reads them while the command line changes them."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._clock = clock
        path.parent.mkdir(parents=True, exist_ok=True)
        # Before SQLite makes it: the files that it puts beside this one have its permissions. One
        # that is there is not opened: by closing it again, this process would lose the locks that
        # another connection of it has, and who ends last elsewhere would take the log away.
        with suppress(FileExistsError):
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        # One thread at a time uses it, and not always the one that made it.
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._connection.row_factory = sqlite3.Row
        self._connection.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = FULL")  # revoked is revoked
        with self._writing():
            self._connection.execute(SCHEMA)

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def create(
        self,
        name: str,
        scopes: frozenset[Scope],
        *,
        tables: Mapping[str, Restriction] | None = None,
        rate_per_s: int | None = None,
        lasts: timedelta | None = None,
    ) -> tuple[Key, str]:
        """Make a key; give it, and what its holder is to show. Nobody can ask for that again."""
        _check(name, scopes)
        id_, secret = secrets.token_hex(ID_BYTES), secrets.token_urlsafe(SECRET_BYTES)
        now = self._clock.now()
        grant = Grant(id_, name, scopes, tables, rate_per_s)
        made = Key(grant, now, now + lasts if lasts else None, None)
        with self._writing():
            self._connection.execute(INSERT, {**_row(made), "digest": _digest(secret)})
        return made, f"{PREFIX}{id_}_{secret}"

    def all(self) -> list[Key]:
        """Give all keys that ever were, the oldest first."""
        return [_key(row) for row in self._connection.execute(ALL)]

    def revoke(self, id_: str) -> Key:
        """Have a key open nothing any more, from the next request on."""
        with self._writing():
            self._connection.execute(REVOKE, {"id": id_, "at": self._clock.now().isoformat()})
        row = self._find(id_)
        if row is None:
            raise missing(id_)
        return _key(row)

    def grant(self, shown: str) -> Grant:
        """Tell what the holder of a key may do; refuse what is none, or is over."""
        id_, _, secret = shown.removeprefix(PREFIX).partition("_")
        row = self._find(id_)
        if row is None or not secrets.compare_digest(row["digest"], _digest(secret)):
            raise unknown()
        return self._valid(row)

    def held(self, id_: str) -> Grant:
        """Tell what a key allows that somebody has shown before; refuse one that is over."""
        row = self._find(id_)
        if row is None:
            raise missing(id_)
        return self._valid(row)

    def _valid(self, row: sqlite3.Row) -> Grant:
        key = _key(row)
        if (state := key.state(self._clock.now())) is not State.VALID:
            raise _over(key, state)
        return key.grant

    def _find(self, id_: str) -> sqlite3.Row | None:
        found: sqlite3.Row | None = self._connection.execute(FIND, {"id": id_}).fetchone()
        return found

    @contextmanager
    def _writing(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")


def unknown() -> KeyUnknown:
    """Make the refusal of a key that nobody has made."""
    return KeyUnknown(
        "the key that the request shows is not known here",
        hint="`headrace keys list` tells which there are, and `headrace keys create` makes one.",
    )


def missing(id_: str) -> KeyMissing:
    """Make the refusal of an id that is no key's."""
    return KeyMissing(f"there is no key {id_}", hint="`headrace keys list` tells the IDs.")


def _check(name: str, scopes: frozenset[Scope]) -> None:
    if not NAME.fullmatch(name) or name == OWNER.name:
        raise ConfigError(
            f"{name!r} cannot be the name of a key",
            hint="It has up to 64 letters, digits, and any of . _ @ - after the first, and is not "
            f"{OWNER.name}, which is that of the data folder's own key.",
        )
    if not scopes:
        words = ", ".join(scope.value for scope in Scope)
        raise ConfigError("a key without a scope opens nothing", hint=f"The scopes are {words}.")


def _over(key: Key, state: State) -> KeyUnknown:
    hint = "Ask for another one: `headrace keys create` makes it."
    if state is State.REVOKED:
        return KeyRevoked(f"the key {key.grant.id} was revoked", hint=hint)
    return KeyExpired(f"the key {key.grant.id} has expired", hint=hint)


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


def _row(key: Key) -> dict[str, object]:
    grant = key.grant
    tables = None
    if grant.tables is not None:
        tables = json.dumps({name: asdict(limits) for name, limits in grant.tables.items()})
    return {
        "id": grant.id,
        "name": grant.name,
        "scopes": " ".join(scope.value for scope in Scope if scope in grant.scopes),
        "tables": tables,
        "rate_per_s": grant.rate_per_s,
        "created_at": key.created_at.isoformat(),
        "expires_at": key.expires_at.isoformat() if key.expires_at else None,
    }


def _key(row: sqlite3.Row) -> Key:
    tables = None
    if row["tables"] is not None:
        tables = {name: _restriction(**of) for name, of in json.loads(row["tables"]).items()}
    scopes = frozenset(map(Scope, row["scopes"].split()))
    return Key(
        Grant(row["id"], row["name"], scopes, tables, row["rate_per_s"]),
        datetime.fromisoformat(row["created_at"]),
        _time(row["expires_at"]),
        _time(row["revoked_at"]),
    )


def _restriction(columns: list[str] | None, where: str) -> Restriction:
    return Restriction(None if columns is None else tuple(columns), where)


def _time(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)
