"""Checks of the answers, of the messages, and of the counts that the loader reported."""

from psycopg.sql import Literal

from tpcdi.checks import Checks, batches, in_each, none, query, validated
from tpcdi.seen import JOINED, TABLES

CHECKS: Checks = {
    "Audit table batches": batches("audit", 3),
    "Audit table sources": query("""\
        SELECT NULL, count(DISTINCT dataset), '=', 13
        FROM audit
        WHERE dataset IN ('Batch', 'DimAccount', 'DimBroker', 'DimCompany', 'DimCustomer',
            'DimSecurity', 'DimTrade', 'FactHoldings', 'FactMarketHistory', 'FactWatches',
            'Financial', 'Generator', 'Prospect')"""),
    "DImessages validation reports": query("""\
        SELECT batchid, count(*) FILTER (WHERE messagetype = 'Validation'), '=', 24
        FROM dimessages GROUP BY batchid"""),
    "DImessages batches": batches("dimessages", 4),
    "DImessages Phase complete records": batches("dimessages", 4, "messagetype = 'PCR'"),
    "DImessages sources": query(
        """\
        SELECT NULL, count(DISTINCT messagesource), '=', 17
        FROM dimessages WHERE messagetype = 'Validation' AND messagesource = ANY({sources})""",
        sources=Literal([table for table in TABLES if table != "DimCompany"]),
    ),
    "DImessages initial condition": none("""\
        dimessages
        WHERE batchid = 0 AND messagetype = 'Validation' AND messagedata IS DISTINCT FROM '0'"""),
}
CHECKS |= {
    f"Batch row count: {table}": in_each(validated(table), ">=", validated(table, before=1))
    for table in TABLES
}
CHECKS |= {
    f"Batch joined row count: {fact}": in_each(
        validated(fact, "Row count joined"), "=", validated(fact)
    )
    for fact in JOINED
}
# Of one moment there may be several counts: only what was counted earlier may not be more.
CHECKS |= {
    f"Data visibility row counts: {table}": query(
        """\
        , seen AS (
            SELECT number, max(number) OVER (
                ORDER BY moment RANGE UNBOUNDED PRECEDING EXCLUDE GROUP) AS before
            FROM told
            WHERE type IN ('Visibility_1', 'Visibility_2') AND text = 'Row count'
                AND source = {table}
        )
        SELECT NULL, count(*) FILTER (WHERE (number >= coalesce(before, 0)) IS NOT TRUE), '=', 0
        FROM seen
        UNION ALL SELECT NULL, count(*), '>', 0 FROM seen""",
        table=Literal(table),
    )
    for table in TABLES
}
CHECKS |= {
    f"Data visibility joined row counts: {fact}": query(
        """\
        , seen AS (
            SELECT rows.number, joined.number AS joined
            FROM told AS rows
            LEFT JOIN told AS joined
                ON joined.type = rows.type AND joined.source = rows.source
                AND joined.moment = rows.moment AND joined.text = 'Row count joined'
            WHERE rows.type = 'Visibility_1' AND rows.source = {fact} AND rows.text = 'Row count'
        )
        SELECT NULL, count(*) FILTER (WHERE (joined >= number) IS NOT TRUE), '=', 0 FROM seen
        UNION ALL SELECT NULL, count(*), '>', 0 FROM seen""",
        fact=Literal(fact),
    )
    for fact in JOINED
}
