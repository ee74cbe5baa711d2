"""The audit's checks, under the names that TPC-DI gives them: what is counted, and what is wanted.

A check is a query of rows (batch or NULL, what was found, relation, what was wanted); it is OK if
the relation holds in every row, and there is one. Rows that are wrong are counted by joins on
equal keys, which PostgreSQL hashes, and what is NULL is wrong wherever it is compared.
"""

from typing import LiteralString

from psycopg.sql import SQL, Composable, Identifier, Literal

Checks = dict[str, Composable]

PRELUDE: LiteralString = """
WITH batch AS MATERIALIZED (
    SELECT n AS batchid,
        (SELECT max(date) FROM audit
        WHERE dataset = 'Batch' AND attribute = 'FirstDay' AND batchid = n) AS firstday,
        (SELECT max(date) FROM audit
        WHERE dataset = 'Batch' AND attribute = 'LastDay' AND batchid = n) AS lastday
    FROM generate_series(1, 3) AS n
),
told AS (
    SELECT batchid, messagesource AS source, messagetext AS text, messagetype AS type,
        messagedateandtime AS moment,
        CASE WHEN messagedata ~ '^[0-9]+$' THEN CAST(messagedata AS BIGINT) END AS number
    FROM dimessages
)
"""
"""What every check may refer to: the batches' windows, and the numbers in the messages."""


def query(text: LiteralString, **parts: str | Composable) -> Composable:
    """Write a query; a text among its parts is the name of a table or a column."""
    named = {key: Identifier(of) if isinstance(of, str) else of for key, of in parts.items()}
    return SQL(text).format(**named)


def none(text: LiteralString, **parts: str | Composable) -> Composable:
    """Want no row of these: `text` is what follows FROM."""
    return SQL("SELECT NULL, count(*), '=', 0 FROM ") + query(text, **parts)


def rows(table: str, condition: LiteralString, joins: LiteralString = "") -> Composable:
    """Want a condition to hold in every row of each batch."""
    text: LiteralString = """\
        SELECT batch.batchid, count(one.batchid) FILTER (WHERE ({condition}) IS NOT TRUE), '=', 0
        FROM batch LEFT JOIN {table} AS one ON one.batchid = batch.batchid {joins}
        GROUP BY batch.batchid"""
    return query(text, table=table.lower(), condition=SQL(condition), joins=SQL(joins))


def in_each(found: Composable, relation: str, wanted: Composable) -> Composable:
    """Want two numbers of each batch to be related so."""
    text: LiteralString = "SELECT batchid, {found}, {relation}, {wanted} FROM batch"
    return query(text, found=found, relation=Literal(relation), wanted=wanted)


def in_all(counted: LiteralString, dataset: str, attribute: str) -> Composable:
    """Want a count (what follows SELECT) to be the sum of an answer over all batches."""
    text: LiteralString = """\
        SELECT NULL, (SELECT {counted}), '=',
            (SELECT sum(value) FROM audit WHERE dataset = {dataset} AND attribute = {attribute})"""
    told = {"dataset": Literal(dataset), "attribute": Literal(attribute)}
    return query(text, counted=SQL(counted), **told)


def answer(dataset: str, *attributes: str, of: LiteralString = "=") -> Composable:
    """Give the sum of keys of a batch (or with `<=`, up to a batch) of the answers."""
    key: LiteralString = """\
        (SELECT sum(value) FROM audit
        WHERE dataset = {} AND attribute = {} AND audit.batchid {} batch.batchid)"""
    return SQL(" + ").join(
        SQL(key).format(Literal(dataset), Literal(attribute), SQL(of)) for attribute in attributes
    )


def validated(source: str, text: str = "Row count", *, before: int = 0) -> Composable:
    """Give a number that the validation query told after a batch, or after one before it."""
    return SQL(
        "(SELECT sum(number) FROM told WHERE type = 'Validation' AND source = {} AND text = {} "
        "AND told.batchid = batch.batchid - {})"
    ).format(Literal(source), Literal(text), Literal(before))


def grown(table: str, attribute: str) -> Composable:
    """Want a table to have grown in each batch by the number that the answers have."""
    new = SQL(" - ").join([validated(table), validated(table, before=1)])
    return in_each(new, "=", answer(table, attribute))


def batches(table: str, wanted: int, condition: LiteralString = "true") -> Composable:
    """Want a table's rows to be of these many batches, to the third if there are more."""
    return query(
        "SELECT NULL, count(DISTINCT batchid) || ', last ' || max(batchid), '=', {wanted} "
        "FROM {table} WHERE {condition}",
        table=table.lower(),
        wanted=Literal(f"{wanted}, last {min(wanted, 3)}"),
        condition=SQL(condition),
    )


def distinct(table: str, key: str) -> Composable:
    """Want every row to have a key of its own."""
    return query(
        "SELECT NULL, count(DISTINCT {key}), '=', count(*) FROM {table}",
        table=table.lower(),
        key=key,
    )
