"""A dimension that lives in a warehouse, and a core that looks up in it."""

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
from dimension import COLUMNS, GIVES, NAMES, SHAPES, expected
from flows import HeldClock
from library import database

from etl_procs import Dataflow, Strategy, Transaction
from etl_procs.calls import Caller
from etl_procs.core import Core, core_path
from etl_procs.metrics import LookupFigures
from headrace import config
from headrace.config import Core as Settings
from headrace.crash import CrashPoints
from migrations.asking import Asker

TABLE = """
CREATE SCHEMA crm;
CREATE TABLE crm.dim (
  sk bigint NOT NULL, a bigint, b text, t bigint, d text, price double precision,
  note text NOT NULL, changed bigint);
CREATE SEQUENCE crm.change"""
PUT = """
INSERT INTO crm.dim VALUES (%s, %s, %s, %s, %s, %s, %s, nextval('crm.change'))
ON CONFLICT DO NOTHING"""


@contextmanager
def away(url: str) -> Iterator[None]:
    """Let nobody connect to a database, and end the lookups that are connected."""
    name = database(url)
    with psycopg.connect(url, dbname="postgres", autocommit=True) as server:
        server.execute(f'ALTER DATABASE "{name}" WITH ALLOW_CONNECTIONS false')
        server.execute(
            "SELECT pg_terminate_backend(pid, 20000) FROM pg_stat_activity "
            "WHERE datname = %s AND application_name = 'headrace lookups'",
            [name],
        )
        yield
        server.execute(f'ALTER DATABASE "{name}" WITH ALLOW_CONNECTIONS true')


def configured(url: str, **core: Any) -> config.Config:
    """Give a configuration with a warehouse and nothing else."""
    loaded = config.load({"warehouse.url": url}, environment={}).config
    return replace(loaded, core=Settings(**core))


class Abroad:
    """Asks by a call, and knows what is right."""

    def __init__(
        self,
        home: Path,
        url: str,
        shape: str,
        strategy: Strategy,
        *,
        max_age_s: float = 0.0,
        version: str = "",
        reached: str = "",
        **more: Any,
    ) -> None:
        key, at, or_earliest = SHAPES[shape]
        unique = ", ".join([*key, *([at] if at else [])])
        self.clock = HeldClock()
        self.warehouse = psycopg.connect(url, autocommit=True)
        self.warehouse.execute(TABLE)
        self.warehouse.execute(f"CREATE UNIQUE INDEX one ON crm.dim ({unique})")
        self.flow = Dataflow("abroad")
        self.foreign = self.flow.foreign(
            "crm.dim",
            f"sk INTEGER NOT NULL, {COLUMNS}, changed INTEGER, UNIQUE ({unique})",
            version=version,
        )
        self.lookup = self.flow.lookup(
            "found",
            self.foreign,
            key=key,
            at=at,
            gives=GIVES,
            or_earliest=or_earliest,
            strategy=strategy,
            max_age_s=max_age_s,
        )

        @self.flow.call(arguments="asked TEXT NOT NULL", returns="found TEXT", looks=self.lookup)
        def look(tx: Transaction, asked: str) -> dict[str, str]:
            columns = dict(zip("abtd", zip(*json.loads(asked), strict=True), strict=True))
            keys = [list(columns[name]) for name in key]
            moments = list(columns[at]) if at else None
            found = tx.lookup(self.lookup, keys[0] if len(keys) == 1 else keys, moments)
            return {"found": json.dumps(found.to_pylist())}

        self._path = core_path(home)
        self.settings = Settings(durability="weak", **more)
        self.connects = partial(Asker, configured(reached or url), self.clock)
        crash = CrashPoints()
        core = Core(self._path, settings=self.settings, clock=self.clock, crash=crash)
        core.prepare([self.flow])
        core.close()
        self.open()

    def open(self) -> None:
        """Begin, as a process does."""
        self.caller = Caller(
            self._path,
            {"abroad": self.flow},
            self.settings,
            CrashPoints(),
            self.clock,
            self.connects,
        )

    def put(self, *rows: Sequence[Any]) -> None:
        """Insert rows (sk, a, b, t, d, price, note); of those that are there already, none."""
        with self.warehouse.cursor() as cursor:
            cursor.executemany(PUT, rows)

    def ask(self, *asked: Sequence[Any]) -> list[dict[str, Any]]:
        """Look up [a, b, t, d] of each."""
        (row,) = self.caller.call("abroad", "look", {"asked": json.dumps(asked)})
        found: list[dict[str, Any]] = json.loads(row["found"])
        return found

    def right(self, *asked: Sequence[Any]) -> list[dict[str, Any]]:
        """Say what the warehouse's rows answer."""
        lookup = self.lookup
        names = ", ".join(NAMES)
        rows = [
            dict(zip(NAMES, row, strict=True))
            for row in self.warehouse.execute(f"SELECT {names} FROM crm.dim")
        ]
        versions = defaultdict(list)
        for row in rows:
            versions[tuple(row[name] for name in lookup.key)].append(row)
        for mine in versions.values():
            mine.sort(key=lambda row: _bytes(row.get(lookup.at)))
        answers = []
        for values in asked:
            by = dict(zip("abtd", values, strict=True))
            key = [by[name] for name in lookup.key]
            at = by[lookup.at] if lookup.at else None
            answers.append(expected(versions[tuple(key)], lookup, key, at))
        return answers

    @property
    def figures(self) -> LookupFigures:
        return self.caller._store.lookups.figures["abroad.found"]

    def close(self) -> None:
        self.caller.close()
        self.warehouse.close()


def _bytes(value: Any) -> Any:
    return (value is not None, value.encode() if isinstance(value, str) else value or 0)
