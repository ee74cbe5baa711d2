"""The grammar: what is allowed means the same after it was parsed and written anew.

PostgreSQL judges: each query is run as it was written and as it is rendered, over one table.
"""

from collections.abc import Iterator

import pytest

from api.errors import QueryRefused
from api.parse import parse, render
from migrations import warehouse

TABLE = """
CREATE TABLE t (a bigint, b double precision, c text);
INSERT INTO t VALUES (1, 1.5, 'a'), (2, -2.5, 'b'), (3, NULL, NULL), (-7, 0, 'a%'), (5, 8, 'A_');
SET timezone TO 'UTC'
"""

# Where precedence, implicit arguments or a change of spelling could change the meaning.
EXPRESSIONS = r"""
2 * mod(7, 4)
mod(a + 1, 2) * 3
10 - mod(7, 4) - 1
100 / mod(7, 4)
2 ^ 3 ^ 2
-2 ^ 2
- (2 ^ 2)
2 * 3 ^ 2
6 / 2 ^ 2
2 ^ -1
a ^ 2 || 'x'
1 - 2 - 3
1 - (2 - 3)
5 / 2 * 2
5 % 3 * 2
-7 % 3
7 / -2
a / 2
a / 2.0
a - -1
- -a
1 + 2 || 'x'
'x' || 1 + 2
a % 2 = 0
not a = 1 and b > 0
not (a = 1 and b > 0)
a = 1 or a = 2 and b < 0
a between symmetric 3 and 1
a not between 1 and 3
c is null = true
a = 1 is true
a is distinct from null
a is not distinct from 3
a isnull
a notnull
c not like 'a%'
c like 'a!%' escape '!'
c not ilike 'A%'
c not similar to 'a'
c !~ 'a'
c ~* 'A'
c !~* 'A'
c like any (array['a', 'b'])
a = any(array[1, 2])
a in (1, 2, null)
a in (values (1), (2))
a > all (select a from t where a < 3)
(a, c) = (1, 'a')
(a, b) < (2, 3)
(a, c) in (select a, c from t)
a::text || c
-a::int
a::float
a::float4
a::int2
b::numeric(5, 1)
b::decimal
'abc'::char(2)
'abc'::char
'abc'::varchar(2)::text
bigint '5'
float8 '1.5'
numeric '1.50'
bool 'true'
'1 day ago'::interval
interval '1 day 2 hours'
interval '1 day -2 hours'
interval '2' day
interval '-3 weeks'
interval '1.5 hours'
interval '1h'
interval '1 mon'
interval '01:02:03'
interval '1'
date '2020-02-28' + 1
date '2020-02-28' - date '2020-01-01'
timestamp '2020-01-01 10:00' at time zone 'UTC'
timestamptz '2020-01-01 10:00+02' at time zone 'Asia/Tokyo'
time '10:00' + interval '1 hour'
extract(dow from date '2020-01-01')
extract('doy' from date '2020-02-01')
extract(epoch from interval '1 day')
date_trunc('week', timestamp '2020-01-01 10:00')
date_trunc('hour', timestamptz '2020-01-01 10:11+00', 'Asia/Tokyo')
to_timestamp(1.5)
substring('abcdef', 2)
substring('abcdef', 2, 3)
substring('abcdef' for 2)
substring('abc123' from '[0-9]+')
trim(leading 'x' from 'xxa')
trim('xax', 'x')
trim(trailing from 'a ')
left('abc', -1)
position('b' in 'abc')
strpos('abc', 'b')
length('é')
split_part('a,b,c', ',', -1)
concat('a', null, 1)
'a' || null
greatest(1, null, 3)
round(2.5)
round(2.567, 2)
round(-2.5::float)
trunc(2.567, 1)
log(2, 8)
log(100)
power(2, 0.5)
case when a > 1 then 'x' end
case a when 1 then 'one' else 'other' end
(select max(a) from t)
array['a', 'b']
1e3
.5
1.0
'it''s'
'a\b'
'%s'
'infinity'::float
variance(a) over (order by a)
ceiling(b)
Now() = now()
now()::date = current_date
char_length(c)
(power(a, 2))::int
case when a > 1 then 1 else variance(a) over () end
'é' || c, strpos(c, 'a'), "upper"(c)
"""

QUERIES = """
select variance, pos.strpos from (select variance(a) from t) v, (select strpos('ab', 'b')) pos
select strpos(c, 'a'), count(*) from t group by c order by strpos, c
with s as (select bool_and(a > 1), stddev(b), var_samp(a) from t) select bool_and, stddev from s
select (select pow(2, 3)), exists (select 1), (select variance(a) from t) from t
select lower(c) from t union select strpos(c, 'a')::text from t order by lower
select count(*) from t join t u using (a) inner join t v on v.a = u.a left outer join t w on true
select count(*) from t join t u join t v on v.a = u.a on t.a = v.a, t w cross join t x
select count(*) from t natural join t u natural left join t v
select count(*) from t x, t y full join t z on z.a = y.a
select 1 as join
select a from t order by a nulls first limit 2
select b from t order by b desc limit 1
select b from t order by b desc nulls last limit 2
select a from t order by 1 offset 2
select a from t order by a fetch first row only
select a from t order by a offset 1 rows fetch next 2 rows only
select a from t order by a % 2 fetch first 1 rows with ties
select a from t limit all
select all a from t
select from t
select string_agg(distinct c, ',' order by c), string_agg(c, ',' order by a desc) from t
select sum(a) over (order by a range between unbounded preceding and current row) from t
select sum(a) over (order by a groups between 1 preceding and 1 following) from t
select sum(a) over (partition by c order by a rows unbounded preceding), count(*) over () from t
select sum(a) over w2 from t window w as (partition by c), w2 as (w order by a)
select a from t union all select a from t except all select 1
select 1 union select 2 intersect select 2
(select 1 union select 2) intersect select 2
select 1 except (select 1 except select 1)
select c, count(*) from t group by c, ()
select c, a % 2, count(*) from t group by grouping sets ((c), (a % 2), ())
select c, a, count(*) from t group by cube (c, a)
select x.a, y.b from t x natural join t y
select * from t x full outer join t y on x.a = y.a + 1
select * from t x right join t y on x.a = y.a + 1
select * from t x left join lateral (select max(a) m from t where t.a < x.a) z on true
select * from (t x join t y on x.a = y.a) left join t z on z.a = x.a
with a as materialized (select 1 as x), b as not materialized (select x from a) select * from b
select t.a, u.* from t, (select 9 as z) u
select a from t where not exists (select from t u where u.a > t.a)
select percentile_cont(array[0.25, 0.5]) within group (order by a) from t
select 1 as one, 2 two, 3 "Three ""3"" x"
select A, "a", T."a" from T
select a from t limit (select 2)
select a from t limit 1 + 1
"""


@pytest.fixture
def connection(warehouse_url: str) -> Iterator[warehouse.Connection]:
    with warehouse.connect(warehouse_url, application="test") as opened:
        opened.execute(TABLE)
        yield opened


def test_what_is_written_anew_means_the_same(connection: warehouse.Connection) -> None:
    expressions = [f"select {line} from t" for line in EXPRESSIONS.strip().split("\n")]
    changed = {}
    for query in [*expressions, *QUERIES.strip().split("\n")]:
        rendered = render(parse(query))
        if answer(connection, query) != answer(connection, rendered):
            changed[query] = rendered
    assert not changed


def answer(connection: warehouse.Connection, query: str) -> list[str]:
    cursor = connection.execute(query.encode())
    names = [column.name for column in cursor.description or ()]
    return [*names, *sorted(map(repr, cursor.fetchall()))]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT interval '1 day ago'",
        "SELECT interval 'P1M'",
        "SELECT current_timestamp(0)",
        "SELECT 1_000",
        "SELECT * EXCLUDE (a) FROM t",
        "SELECT count(* EXCLUDE (a)) FROM t",
        "SELECT * REPLACE (1 AS a) FROM t",
        'SELECT extract("epoch from now()), pg_sleep(1) --" from now())',
        "SELECT sum(a) OVER (ORDER BY a ROWS 1 PRECEDING EXCLUDE CURRENT ROW) FROM t",
        "SELECT sum(a IGNORE NULLS) FROM t",
        "SELECT sum(a) OVER w OVER w FROM t WINDOW w AS (ORDER BY a)",
        "SELECT * FROM t JOIN t u",
        "SELECT * FROM t INNER JOIN t u",
        "SELECT * FROM t LEFT JOIN t u",
        "SELECT * FROM t, t u JOIN t v",
        "SELECT * FROM t JOIN t u JOIN t v ON true",
        "SELECT * FROM t CROSS JOIN t u JOIN (SELECT 1) v",
        "SELECT * FROM (t JOIN t u) JOIN t v USING (a)",
        "SELECT * FROM t LEFT JOIN LATERAL (SELECT t.a) u",
    ],
)
def test_what_the_parser_would_change_or_let_through_is_refused(query: str) -> None:
    with pytest.raises(QueryRefused):
        parse(query)


def test_comments_and_case_are_not_passed_on() -> None:
    query = parse("SELECT /*+ hint */ A -- one\n FROM T /* two */")
    assert render(query) == 'SELECT "a" FROM "t"'
