"""A fuzzer of parser, resolver and divider: what they let through reads what is allowed, alone.

That is told independently: the text that they write is parsed anew, and PostgreSQL itself says
which relations it would read.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

import every
import hostile_sql
import psycopg
from random_queries import Queries
from sqlglot import exp, parse
from test_grammar import EXPRESSIONS, QUERIES

from api.catalogue import Catalogue
from api.errors import QueryRefused
from api.grant import Restriction
from api.joined import NotAlike
from api.resolve import resolve
from api.split import split
from migrations.warehouse import Connection

ALLOWED = "allowed"
"""The schema of the one table that may be read."""
SEEN = tuple(name for name in every.facts.columns.names if name != "w")
CATALOGUE = Catalogue.of({"every": every.flow}).only({"every.facts": Restriction(SEEN)})
MARKED = re.compile("headrace_[0-9a-f]{32}_[0-9]+")
WRITES = (exp.DML, exp.DDL, exp.Command, exp.Into, exp.Lock, exp.Copy, exp.Set, exp.Anonymous)

WORDS = """
SELECT FROM WHERE WITH RECURSIVE AS UNION ALL INTERSECT EXCEPT JOIN LEFT LATERAL ON USING NATURAL
CROSS GROUP BY ORDER LIMIT OFFSET FETCH FIRST ROWS ONLY HAVING WINDOW OVER PARTITION FILTER WITHIN
VALUES TABLE ROW ARRAY CASE WHEN THEN ELSE END CAST IN ANY EXISTS NOT NULL IS DISTINCT BETWEEN LIKE
ESCAPE SIMILAR TO AT TIME ZONE INTERVAL DATE COLLATE OPERATOR INTO FOR UPDATE SHARE RETURNING DELETE
INSERT
TABLESAMPLE ORDINALITY EXTRACT SUBSTRING TRIM POSITION COPY DO SET
facts every.facts states every.states secret pg_authid pg_catalog information_schema id n t d p x y
count sum max pg_sleep pg_read_file current_setting version regclass text int xml json tableoid ctid
1 0 -1 1.5 'a' '' '''' '\\' "a" "facts" $1 $$ E'a' U&'a' * , , ( ) ( ) . . ; :: := => -> || =
<> < + -
/ % ^ @ # & | ! ~ ? [ ] { } -- /* */ \u200b \u00a0 \u202e \ufeff é \x00 \ud800
""".split(" ")  # noqa: SIM905 - read as text
TOKEN = re.compile(r"\w+|'[^']*'|\"[^\"]*\"|\s+|.", re.DOTALL)


def seeds() -> list[str]:
    """Give queries to begin with: good ones, and hostile ones."""
    makes = Queries(1)
    good = [re.sub(r"\bstates\b", "facts", makes.query()) for _ in range(200)]
    of_grammar = [f"select {one} from t" for one in EXPRESSIONS.strip().split("\n")]
    of_grammar += QUERIES.strip().split("\n")
    for old, new in (("t", "facts"), ("a", "n"), ("b", "r"), ("c", "t")):
        of_grammar = [re.sub(rf"\b{old}\b(?!')", new, one) for one in of_grammar]
    hostile = hostile_sql.refused()
    return [*good * 3, *of_grammar * 3, *hostile]


def queries(seed: int, count: int) -> Iterator[str]:
    """Make so many queries: token soups, and mutations of the seeds."""
    random, known = Random(seed), seeds()  # noqa: S311 - repeatable on purpose
    words = [word for line in WORDS for word in line.split("\n") if word]
    for _ in range(count):
        if random.random() < 0.1:
            length = random.randrange(2, 25)
            yield "SELECT " + " ".join(random.choice(words) for _ in range(length))
        else:
            yield mutated(random, random.choice(known), known, words)


def mutated(random: Random, query: str, known: Sequence[str], words: Sequence[str]) -> str:
    """Change a query in a few places."""
    tokens = TOKEN.findall(query)
    for _ in range(random.choice([0, 1, 1, 1, 2, 4])):
        at = random.randrange(len(tokens) + 1)
        end = at + random.choice([0, 1, 1, 2, 5])
        other = TOKEN.findall(random.choice(known))
        begin = random.randrange(len(other) + 1)
        new = random.choice(
            [
                [],
                [random.choice(words)],
                [" ", random.choice(words), " "],
                tokens[at:end] * 2,
                other[begin : begin + random.randrange(8)],
                ["(", *tokens[at:end], ")"],
                ["(", *other, ")"],
            ]
        )
        tokens[at:end] = new
    return "".join(tokens)


def fuzzed(connection: Connection, seed: int, count: int) -> Counter[str]:
    """Ask many queries; tell how many were refused, let through, divided, and run."""
    found = Counter[str]()
    connection.execute("SET statement_timeout TO '2s'")
    for query in queries(seed, count):
        try:
            resolved = resolve(query, CATALOGUE)
            tables = [shown for _, shown in resolved.places]
            try:
                split(resolved, orders_text=True)
                found["divided"] += 1
            except NotAlike:
                pass
            template = resolved.template()
        except (QueryRefused, RecursionError):  # which is a refusal in the island
            found["refused"] += 1
            continue
        except Exception as error:
            raise AssertionError(f"{query!r} is not refused, but breaks: {error!r}") from error
        found["let through"] += 1
        assert {shown.outlet.full_name for shown in tables} <= {"every.facts"}, query
        check_text(query, template.text)
        source = f"SELECT {', '.join(SEEN)} FROM {ALLOWED}.facts"
        found["run"] += check_plan(connection, query, template.filled([source] * len(tables)))
    return found


def check_text(query: str, text: str) -> None:
    """Parse a text anew, and look for what is not to be there."""
    statements = parse(text, dialect="postgres")
    assert len(statements) == 1, (query, text)
    (statement,) = statements
    assert isinstance(statement, exp.Query), (query, text)
    assert not list(statement.find_all(*WRITES)), (query, text)
    names = {cte.alias for cte in statement.find_all(exp.CTE)}
    for table in statement.find_all(exp.Table):
        is_ours = MARKED.fullmatch(table.name) or table.name in names
        assert is_ours, (query, text)
        assert not table.db, (query, text)


def check_plan(connection: Connection, query: str, text: str) -> bool:
    """Have PostgreSQL tell what it would read; tell whether it takes the query at all."""
    try:
        told: Any = connection.execute(f"EXPLAIN (VERBOSE, FORMAT JSON) {text}".encode()).fetchone()
    except psycopg.Error:
        return False
    for plan in nodes(told[0][0]["Plan"]):
        if "Relation Name" in plan:
            assert (plan["Schema"], plan["Relation Name"]) == (ALLOWED, "facts"), (query, text)
        assert "Function Name" not in plan, (query, text)
        assert plan["Node Type"] not in ("ModifyTable", "LockRows"), (query, text)
    return True


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Give a plan and all below it."""
    yield plan
    for inner in plan.get("Plans", ()):
        yield from nodes(inner)


def prepare(connection: Connection) -> None:
    """Make the table that may be read, and others that may not."""
    columns = every.COLUMNS.replace("REAL", "float8")
    connection.execute(f"CREATE SCHEMA {ALLOWED}".encode())
    for table in (f"{ALLOWED}.facts", "facts", "states", "secret", "sales", "t", "x"):
        connection.execute(f"CREATE TABLE {table} ({columns})".encode())
