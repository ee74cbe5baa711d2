"""A fuzzer of keys that see some tables, columns and rows: nothing else is told, however one asks.

PostgreSQL is asked the same over views that hold only what may be seen, and that keep what a query
computes from rows they hide. What it answers is answered; what it refuses is refused.
"""

import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from random import Random

import every
from dividing import Divided, divided, written
from random_queries import Queries

from api.grant import Restriction
from api.island import Asked
from api.plans import Plan
from api.predicate import normal
from etl_procs import Outlet
from headrace.errors import Refused

Seen = dict[str, Restriction]
PLANS = (Plan.SHIP, Plan.SPLIT, Plan.GATHER)
OUTLETS = {"facts": every.facts, "states": every.states}
ALL = tuple(OUTLETS.values())
NAMES = every.facts.columns.names
NARROW = ("n > 0", "n BETWEEN -5 AND 5", "n <> 0 AND n < 100", "t IS NULL", "t = 'a'", "id < 20")
"""What hides the rows over which a probe fails."""
PROBES = (
    "SELECT count(t::integer) FROM {}",
    "SELECT id FROM {} WHERE t::date = '2026-05-06'",
    "SELECT max(10 / n) FROM {}",
    "SELECT n::smallint FROM {}",
    "SELECT id FROM {} WHERE n::smallint = 1 OR t = 'a'",
    "SELECT sum(ln(p)) FROM {} WHERE sqrt(p) > 0",
    "SELECT x.id FROM {0} x JOIN {0} y ON x.t::numeric = y.n",
    "SELECT CASE WHEN b THEN 1 / n ELSE 0 END FROM {}",
    "SELECT * FROM {}",
    "SELECT count(x) FROM {} x",
    "SELECT count(x.*) FROM {} x",
    "SELECT a FROM {} AS x (a)",
    "SELECT id FROM {0} UNION SELECT id FROM {0} ORDER BY n",
    "SELECT (SELECT min(n) FROM {}) FROM {}",
    "SELECT count(*) FROM {} NATURAL JOIN (SELECT 1 AS n) z",
    "SELECT count(*) FROM {} JOIN (SELECT true AS b) z USING (b)",
    "SELECT _batch FROM {}",
    "SELECT ctid, tableoid FROM {}",
)
"""What would tell of a hidden row by failing, or of a hidden column by being there."""
QUOTED = re.compile(r'"([^"]*)"')


def restrictions(queries: Queries) -> Seen:
    """Choose what is seen: of one table or of both, some columns and some rows."""
    random = queries.random
    found: Seen = {}
    for name in random.sample(sorted(OUTLETS), random.choice([1, 2, 2])):
        columns = None
        if random.random() < 0.8:
            columns = tuple(
                sorted(random.sample(NAMES, random.randrange(len(NAMES) // 2, len(NAMES))))
            )
        where = random.choice(["", queries.condition(OUTLETS[name]), random.choice(NARROW)])
        known = OUTLETS[name].columns
        found[name] = Restriction(columns, normal(where, known) if where else "")
    return found


def tables_of(seen: Seen) -> tuple[Outlet, ...]:
    """Give the tables as they are seen."""
    found = []
    for name, of in seen.items():
        columns = OUTLETS[name].columns.only(of.columns or NAMES)
        key = tuple(column for column in OUTLETS[name].key if column in columns.names)
        found.append(replace(OUTLETS[name], columns=columns, key=key))
    return tuple(found)


def show(rows: Divided, seen: Seen) -> None:
    """Make the views that hold what is seen, and nothing else where queries look."""
    rows.connection.execute("DROP SCHEMA IF EXISTS seen CASCADE; CREATE SCHEMA seen")
    for name, of in seen.items():
        columns = ", ".join(n for n in NAMES if of.columns is None or n in of.columns)
        view = f"CREATE VIEW seen.{name} WITH (security_barrier) AS SELECT {columns}"
        where = f" WHERE {of.where}" if of.where else ""
        rows.connection.execute(f"{view} FROM plain.{name}{where}".encode())
    rows.connection.execute("SET search_path TO seen")
    rows.island.tables = tuple((f"every.{name}", of) for name, of in seen.items())


def asked_by_restricted(home: Path, url: str, seed: int, rounds: int, count: int) -> Counter[str]:
    """Ask many queries under many restrictions; tell how many were answered and refused."""
    queries, found = Queries(seed), Counter[str]()
    random = queries.random
    with divided(home, url, Random(seed)) as rows:  # noqa: S311 - repeatable on purpose
        for _ in range(rounds):
            seen = restrictions(queries)
            show(rows, seen)
            check_hidden(rows, seen)
            for _ in range(count):
                probe = random.choice(PROBES)
                table = random.choice(sorted(OUTLETS))
                queries.tables = random.choice([ALL, tables_of(seen), tables_of(seen)])
                query = random.choice([probe.format(table, table), queries.query()])
                found["answered" if check(rows, seen, query) else "refused"] += 1
    return found


def check(rows: Divided, seen: Seen, query: str) -> bool:
    """Hold what the island says of a query, by each plan, against what PostgreSQL says; tell
    whether that answers.
    """
    expected = rows.expected(query)
    for plan in PLANS:
        said = f"{query} by {plan}, of a key that sees {seen}"
        asked = Asked(query, plan=plan, tables=rows.island.tables)
        try:
            answer = rows.island.query(query, plan=plan)
            found = [column.type for column in answer.columns], written(query, answer.rows)
            assert found == expected, f"{said}, is answered otherwise"
        except Refused as error:
            check_words(rows, seen, query, f"{error.what} {error.hint}")
        try:
            told = rows.island.explain(asked)
        except Refused as error:
            check_words(rows, seen, query, f"{error.what} {error.hint}")
            continue
        assert {table["table"] for table in told["tables"]} <= {f"every.{name}" for name in seen}
        assert not any(candidate["sql"] for candidate in told["candidates"]), said
        assert not any(table["staged_rows"] for table in told["tables"]), said
        check_words(rows, seen, query, json.dumps(told, ensure_ascii=False))
    return expected is not None


def check_words(rows: Divided, seen: Seen, query: str, told: str) -> None:
    """Look for hidden tables, and for texts of hidden rows, in what is no answer."""
    hidden = [name for name in OUTLETS if name not in seen and name not in query]
    assert not any(re.search(rf"\b{name}\b", told) for name in hidden), (seen, query, told)
    shown = set(re.findall("'([^']*)'", query))
    for name, of in seen.items():
        if of.columns is None or "t" in of.columns:
            shown |= {t for (t,) in rows.connection.execute(f"SELECT t FROM {name}".encode())}
    quoted = {text for text in QUOTED.findall(told) if text and text in every.TEXTS}
    assert quoted <= shown | set(NAMES), (seen, query, told)


def check_hidden(rows: Divided, seen: Seen) -> None:
    """What is hidden is refused in the words for what is not there."""
    pairs = [(f"SELECT 1 FROM {name}", name) for name in OUTLETS if name not in seen]
    known = {name for of in seen.values() for name in of.columns or NAMES}
    for name in set(NAMES) - known:
        pairs += [(f"SELECT x.{name} FROM {table} x", name) for table in seen]
    for query, name in pairs:
        word = re.compile(rf"\b{name}\b")
        one, other = refusal(rows, query), refusal(rows, word.sub("stranger", query))
        assert word.sub("stranger", one) == word.sub("stranger", other), (seen, one, other)


def refusal(rows: Divided, query: str) -> str:
    """Give the words in which a query is refused."""
    try:
        rows.island.query(query)
    except Refused as error:
        return f"{error.what} {error.hint}"
    raise AssertionError(f"{query} is answered to {rows.island.tables}")
