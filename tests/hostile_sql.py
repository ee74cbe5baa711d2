"""Hostile SQL: queries that try to read, write, run or use up what they must not."""

# ruff: noqa: RUF001 - letters that look alike are what this is about

FUNCTIONS = """
pg_read_file('/etc/passwd')
pg_read_binary_file('/etc/passwd')
pg_stat_file('/etc/passwd')
pg_ls_dir('/')
pg_ls_logdir()
pg_file_read('/etc/passwd', 0, 9)
lo_import('/etc/passwd')
lo_export(1, '/tmp/x')
lo_get(1)
lo_create(0)
loread(1, 1)
dblink('host=x', 'SELECT 1')
dblink_connect('host=x')
pg_sleep(1)
pg_sleep_for('1 day')
pg_sleep_until('tomorrow')
current_setting('data_directory')
set_config('role', 'postgres', false)
query_to_xml('SELECT 1', true, true, '')
query_to_xml_and_xmlschema('SELECT 1', true, true, '')
table_to_xml('sales', true, true, '')
database_to_xml(true, true, '')
cursor_to_xml('c', 1, true, true, '')
xpath('/a', 'x')
ts_stat('SELECT 1')
pg_stat_get_activity(NULL)
pg_backend_pid()
pg_terminate_backend(1)
pg_cancel_backend(1)
pg_reload_conf()
pg_rotate_logfile()
pg_advisory_lock(1)
pg_notify('a', 'b')
pg_logical_emit_message(true, 'a', 'b')
pg_create_restore_point('a')
pg_switch_wal()
pg_get_viewdef('sales')
pg_relation_size('sales')
pg_table_is_visible(1)
has_table_privilege('sales', 'SELECT')
obj_description(1)
txid_current()
pg_current_xact_id()
inet_server_addr()
inet_client_addr()
inet_server_port()
version()
current_database()
current_schema()
current_catalog
session_user
pg_postmaster_start_time()
pg_conf_load_time()
clock_timestamp()
timeofday()
random()
setseed(0.5)
gen_random_uuid()
nextval('s')
setval('s', 1)
lastval()
generate_series(1, 1000000000)
repeat('x', 1000000000)
lpad('x', 1000000000)
rpad('x', 1000000000)
format('%1000000000s', 'x')
array_fill(1, ARRAY[100000, 100000])
string_to_array('a,b', ',')
regexp_replace('a', '(a+)+b', '')
regexp_matches('a', 'a')
regexp_split_to_table('a', 'a')
json_each('{}')
jsonb_path_query('{}', '$')
to_regclass('sales')
row_to_json(sales)
encode('a', 'hex')
convert_from('a', 'utf8')
unnest(ARRAY[1])
pg_catalog.version()
pg_catalog.upper('a')
public.f()
"pg_sleep"(1)
"PG_SLEEP"(1)
PG_sleep (1)
pg_sleep/**/(1)
read_csv('/etc/passwd')
read_csv_auto('/etc/passwd')
read_parquet('/tmp/x')
read_text('/etc/passwd')
read_blob('/etc/passwd')
glob('/*')
getenv('HOME')
getvariable('x')
duckdb_settings()
duckdb_secrets()
duckdb_functions()
pragma_version()
sniff_csv('/etc/passwd')
parquet_metadata('/tmp/x')
postgres_query('a', 'SELECT 1')
query('SELECT 1')
query_table('sales')
current_query()
""".strip().split("\n")

TABLES = """
pg_catalog.pg_authid
pg_shadow
pg_stat_activity
pg_settings
pg_file_settings
pg_hba_file_rules
pg_largeobject
information_schema.tables
information_schema.columns
headrace.ledger
shop_main.sales
shop_delta.sales
pg_temp.staged_0
pg_toast.pg_toast_1
duckdb_settings
sqlite_master
parts
merged
"/etc/passwd"
'/etc/passwd'
'/tmp/x.csv'
"/tmp/x.parquet"
"s3://a/b.parquet"
"https://a/b.csv"
only_in_dreams
shop.sales.id
postgres.shop.sales
"shop.sales"
"SALES"
ｓales
sаles
sales\u200b
\ufeffsales\u2060
ſales
""".strip().split("\n")
"""Some with letters that look alike, have no width, or would be others when normalised."""

STATEMENTS = """
SELECT 1; SELECT 2
SELECT 1;;DROP TABLE sales
SELECT 1;--
;SELECT 1;SELECT 1
SELECT 1 /* ; */ ; DROP TABLE sales
SELECT '1'';'; DROP TABLE sales --'
SELECT 1\\; DROP TABLE sales
COPY sales TO STDOUT
COPY (SELECT 1) TO PROGRAM 'id'
COPY sales FROM '/etc/passwd'
DO $$ BEGIN PERFORM 1; END $$
EXPLAIN ANALYZE DELETE FROM sales
EXPLAIN (ANALYZE) SELECT 1
VACUUM
ANALYZE
CHECKPOINT
LOAD 'x'
SET ROLE postgres
RESET ALL
DISCARD ALL
SHOW data_directory
LISTEN a
NOTIFY a
PREPARE p AS SELECT 1
EXECUTE p
DEALLOCATE ALL
DECLARE c CURSOR FOR SELECT 1
FETCH ALL FROM c
BEGIN
COMMIT
ROLLBACK
SAVEPOINT a
SET TRANSACTION READ WRITE
LOCK TABLE sales
GRANT ALL ON sales TO public
CREATE TABLE t AS SELECT 1
CREATE FUNCTION f() RETURNS int RETURN 1
ALTER SYSTEM SET a = 1
TRUNCATE sales
REFRESH MATERIALIZED VIEW v
CALL p()
IMPORT FOREIGN SCHEMA s FROM SERVER x INTO y
ATTACH '/tmp/x.db'
INSTALL httpfs
PRAGMA version
SUMMARIZE sales
DESCRIBE sales
PIVOT sales ON id
EXPORT DATABASE '/tmp/x'
USE shop
MERGE INTO sales USING sales s ON true WHEN MATCHED THEN DELETE
SELECT * INTO stolen FROM sales
SELECT * INTO TEMP stolen FROM sales
SELECT * FROM sales FOR UPDATE
SELECT * FROM sales FOR NO KEY UPDATE NOWAIT
SELECT * FROM sales FOR KEY SHARE
SELECT * FROM (SELECT * FROM sales FOR UPDATE) s
WITH x AS (DELETE FROM sales RETURNING *) SELECT * FROM x
WITH x AS (INSERT INTO sales VALUES (1) RETURNING *) SELECT * FROM x
WITH x AS (UPDATE sales SET id = 1 RETURNING *) SELECT * FROM x
WITH x AS (MERGE INTO sales USING sales s ON true WHEN MATCHED THEN DELETE RETURNING *) TABLE x
WITH x AS (TABLE pg_authid) SELECT * FROM x
WITH sales AS (SELECT * FROM sales) SELECT * FROM pg_authid
WITH pg_authid AS (SELECT * FROM pg_authid) SELECT * FROM pg_authid
WITH a AS (SELECT * FROM b), b AS (SELECT 1) SELECT * FROM a
TABLE pg_authid
SELECT * FROM ONLY sales
SELECT * FROM sales *, pg_authid
SELECT * FROM sales, LATERAL pg_ls_dir('/')
SELECT * FROM sales, LATERAL generate_series(1, id)
SELECT * FROM ROWS FROM (pg_ls_dir('/')) r
SELECT * FROM XMLTABLE('/a' PASSING 'x' COLUMNS a int)
SELECT * FROM JSON_TABLE('{}', '$' COLUMNS (a int))
SELECT * FROM sales TABLESAMPLE SYSTEM (1)
SELECT * FROM sales AS OF SYSTEM TIME '1'
SELECT * FROM sales FOR SYSTEM_TIME AS OF '1'
SELECT 'sales'::regclass
SELECT 'sales'::regclass::oid
SELECT 1::regrole
SELECT 'f'::regproc
SELECT 'f()'::regprocedure
SELECT 'int'::regtype
SELECT 'pg_catalog'::regnamespace
SELECT CAST('sales' AS regclass)
SELECT regclass 'sales'
SELECT 'x'::xml
SELECT '{}'::json
SELECT '{}'::jsonb
SELECT '1'::money
SELECT 'a'::bytea
SELECT 1::oid
SELECT 'a'::name
SELECT '/'::ltree
SELECT '1'::pg_catalog.int4
SELECT '1'::"pg_catalog"."int4"
SELECT 'x'::public.mine
SELECT 'x'::sales
SELECT ROW(1, 2)::sales
SELECT '{1}'::int[]::regclass[]
SELECT (sales).id FROM sales
SELECT (sales).* FROM sales
SELECT (s.*).id FROM sales s
SELECT s.pg_sleep FROM sales s
SELECT s.row_to_json FROM sales s
SELECT sales.tableoid FROM sales
SELECT s.ctid FROM sales s
SELECT s.xmin FROM sales s
SELECT s.cmax FROM sales s
SELECT sales.version FROM sales
SELECT id OPERATOR(pg_catalog.+) 1 FROM sales
SELECT id OPERATOR(public.=) 1 FROM sales
SELECT note COLLATE "C" FROM sales
SELECT note COLLATE pg_catalog."default" FROM sales
SELECT note @@ 'a' FROM sales
SELECT note -> 'a' FROM sales
SELECT note #>> '{a}' FROM sales
SELECT note @> 'a' FROM sales
SELECT id & 1 FROM sales
SELECT id << 60 FROM sales
SELECT @ id FROM sales
SELECT E'\\x41'
SELECT U&'\\0041'
SELECT U&"\\0073ales"
SELECT B'1'
SELECT X'41'
SELECT N'a'
SELECT $$a$$
SELECT $a$ a $a$
SELECT $1
SELECT :x
SELECT ?
SELECT @x
SELECT @@version
SELECT {d '2020-01-01'}
SELECT #1 FROM sales
SELECT * EXCLUDE (id) FROM sales
SELECT * EXCEPT (id) FROM sales
SELECT * REPLACE (1 AS id) FROM sales
SELECT COLUMNS('.*') FROM sales
SELECT id FROM sales QUALIFY true
SELECT id FROM sales USING SAMPLE 1
SELECT list_transform([1], x -> x)
SELECT ARRAY(SELECT rolname FROM pg_authid)
SELECT (SELECT passwd FROM pg_shadow LIMIT 1)
SELECT 1 WHERE EXISTS (SELECT FROM pg_authid)
SELECT 1 ORDER BY (SELECT 1 FROM pg_authid)
SELECT 1 LIMIT (SELECT count(*) FROM pg_authid)
SELECT sum(1) FILTER (WHERE EXISTS (TABLE pg_authid))
SELECT sum(1) OVER (ORDER BY (SELECT 1 FROM pg_authid))
SELECT CASE WHEN true THEN pg_sleep(1) END
SELECT 1 UNION SELECT usesysid FROM pg_user
SELECT 1 INTERSECT (TABLE pg_authid)
(SELECT 1) UNION ALL (SELECT pg_sleep(1))
SELECT id FROM sales JOIN pg_authid ON true
SELECT id FROM (sales JOIN pg_authid ON true)
SELECT id FROM sales JOIN LATERAL (SELECT pg_sleep(1)) x ON true
VALUES (pg_sleep(1))
SELECT * FROM (VALUES (pg_sleep(1))) v
SELECT 1 AS "a""; DROP TABLE sales", pg_sleep(1)
SELECT pg\u200b_sleep(1)
SELECT \u202epg_sleep(1)\u202c
SELECT ｐｇ_ｓｌｅｅｐ(1)
SELECT 1\u037e SELECT 2
SELECT\u00a0pg_sleep(1)
SELECT 1 \x00; SELECT 2
SELECT '\x00'
""".strip().split("\n")

HARMLESS = r"""
SELECT current_role FROM sales
SELECT "user" FROM sales
SELECT system_user FROM sales
SELECT ctid FROM sales
SELECT xmin FROM sales
SELECT tableoid FROM sales
SELECT pg_sleep FROM sales
SELECT id FROM sales pg_authid
SELECT pg_authid.id FROM sales AS pg_authid
SELECT sales FROM sales
SELECT count(sales) FROM sales
SELECT sales IS NULL FROM sales
SELECT sales::text FROM sales
SELECT |/ id FROM sales
SELECT ‘a’ FROM sales
SELECT $$ FROM sales
SELECT id FROM sales WHERE note = '\' OR true --'
SELECT id FROM sales WHERE note = ' OR ''1''=''1'
SELECT id FROM sales WHERE note = '/*' OR note = '*/'
SELECT id FROM sales /* /* nested */ OR true */
SELECT id AS "; DROP TABLE sales" FROM sales
SELECT id AS "a""b" FROM sales
SELECT id AS ＩＤ FROM sales
SELECT 'ﬁ' = 'fi', 'é' = 'é', note = 'а' FROM sales
SELECT id FROM sales WHERE id = '1'
SELECT id FROM sales WHERE id = '1 OR 1=1'
SELECT id FROM sales WHERE id = '١'
SELECT note FROM sales WHERE note SIMILAR TO '(a+)+b'
SELECT note FROM sales WHERE note ~ '(a*)*b'
SELECT note FROM sales WHERE note ~ '('
SELECT note FROM sales WHERE note LIKE '%\'
SELECT 1::numeric(1000, 500) FROM sales
SELECT 10 ^ 400 FROM sales
SELECT 9223372036854775807 + id FROM sales
SELECT id FROM sales GROUP BY id HAVING count(*) > 0
SELECT id FROM sales GROUP BY ALL
SELECT id FROM sales LIMIT 1 BY id
SELECT id // 2 FROM sales
SELECT sum(id) FROM sales WHERE price > 'NaN'
SELECT max(id) FROM sales WHERE id IN (1, '2', NULL)
SELECT id FROM sales ORDER BY 1 LIMIT 99999999999999999999
SELECT id FROM sales OFFSET -1
SELECT id FROM sales LIMIT 0x10
SELECT 0b11 + id FROM sales
""".strip().split("\n")
"""Queries that PostgreSQL judges: the same answer as it gives, or refused as it does."""

UNANSWERED = {
    "SELECT current_role FROM sales",
    "SELECT system_user FROM sales",
    "SELECT id FROM sales LIMIT 0x10",
    "SELECT 0b11 + id FROM sales",
}
"""Those of them that are refused though PostgreSQL answers: names of roles, and odd numbers."""

LARGE = [
    "SELECT " + "(" * 9_000 + "1" + ")" * 9_000,
    "SELECT " + "NOT " * 7_000 + "true",
    "SELECT " + "-" * 20_000 + "1",
    "SELECT " + "- " * 15_000 + "1",
    "SELECT " + "CASE WHEN true THEN " * 1_500 + "1" + " END" * 1_500,
    "SELECT " + "abs(" * 5_000 + "1" + ")" * 5_000,
    "SELECT * FROM " + "(SELECT * FROM " * 2_000 + "sales" + ") x" * 2_000,
    "SELECT 1" + " UNION ALL SELECT 1" * 1_500,
    "WITH " + ", ".join(f"c{n} AS (SELECT 1)" for n in range(1_300)) + " SELECT pg_sleep(1)",
    "SELECT " + "1::text" + "::text" * 5_000 + ", pg_sleep(1)",
    "SELECT " + "[" * 16_000,
    "SELECT '" + "'" * 32_000,
    "SELECT " + "/*" * 15_000,
    "SELECT " + '"' * 32_001,
    "SELECT 1 IN (" + "1," * 16_000 + "1)",
    "SELECT '" + "x" * 300_000 + "'",
    "\n" * 33_000 + "SELECT 1",
]


def refused() -> list[str]:
    """Give all queries that no engine may ever see."""
    return [
        *(f"SELECT {one}" for one in FUNCTIONS),
        *(f"SELECT id FROM sales WHERE ({one}) IS NULL" for one in FUNCTIONS),
        *(f"SELECT * FROM {one}" for one in FUNCTIONS),
        *(f"SELECT * FROM {one}" for one in TABLES),
        *(f"SELECT id FROM sales WHERE id IN (SELECT 1 FROM {one})" for one in TABLES),
        *STATEMENTS,
        "SELECT 1 --\n; DROP TABLE sales",
        "SELECT 1\r;SELECT 2",
    ]
