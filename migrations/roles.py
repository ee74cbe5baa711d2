"""The roles of a warehouse: one that moves rows, and for each dataflow one that may read it."""

from collections.abc import Iterable
from string import Template
from typing import LiteralString

from psycopg import sql

from etl_procs.dataflow import Dataflow
from migrations import tables
from migrations.warehouse import Connection

MIGRATOR = "headrace_migrator"
ISLAND = "headrace_island"
"""As whom queries are asked: it can read, and nothing else."""
READER = "headrace_reads_"

# What it makes, it owns. It sees how busy the warehouse is, so that a pull can wait.
OF_MIGRATOR = Template("""\
-- Run by psql as an administrator of the database. It may be run again.
\\set ON_ERROR_STOP on
DO $$$$ BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = '$migrator') THEN
        CREATE ROLE $migrator LOGIN;  -- give it a password: \\password $migrator
    END IF;
    EXECUTE format('GRANT CONNECT, CREATE, TEMPORARY ON DATABASE %I TO $migrator',
        current_database());
END $$$$;
GRANT pg_read_all_stats TO $migrator;
DO $$$$ BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = '$island') THEN
        CREATE ROLE $island NOLOGIN;
    END IF;
    EXECUTE format('GRANT TEMPORARY ON DATABASE %I TO $island', current_database());
END $$$$;
GRANT $island TO $migrator;
""")

# Another role may have made them before, by `headrace warehouse init`.
OF_SCHEMA = Template("""\
CREATE SCHEMA IF NOT EXISTS "$schema" AUTHORIZATION $migrator;
ALTER SCHEMA "$schema" OWNER TO $migrator;
DO $$$$ DECLARE relation regclass; BEGIN
    FOR relation IN
        SELECT oid FROM pg_class
        WHERE relnamespace = '"$schema"'::regnamespace AND relkind IN ('r', 'p', 'v')
    LOOP
        EXECUTE format('ALTER TABLE %s OWNER TO $migrator', relation);
    END LOOP;
END $$$$;
""")

# Where the role is not there and cannot be made, queries are asked as whoever moves rows.
LET_ISLAND_READ: LiteralString = """\
DO $$ DECLARE
    place text;
    relation regclass;
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'headrace_island') THEN
        IF NOT (SELECT rolsuper OR rolcreaterole FROM pg_roles WHERE rolname = current_user) THEN
            RETURN;
        END IF;
        BEGIN
            CREATE ROLE headrace_island NOLOGIN;
            GRANT headrace_island TO CURRENT_USER;
        EXCEPTION WHEN duplicate_object OR unique_violation THEN
            NULL;  -- another database of the same server was quicker
        END;
    END IF;
    FOR place IN SELECT nspname FROM pg_namespace WHERE nspname IN ({schemas}) LOOP
        IF NOT has_schema_privilege('headrace_island', place, 'USAGE') THEN
            EXECUTE format('GRANT USAGE ON SCHEMA %I TO headrace_island', place);
            EXECUTE format('ALTER DEFAULT PRIVILEGES IN SCHEMA %I GRANT SELECT ON TABLES TO '
                'headrace_island', place);
        END IF;
        FOR relation IN
            SELECT oid FROM pg_class
            WHERE relnamespace = quote_ident(place)::regnamespace AND relkind IN ('r', 'p', 'v')
                AND NOT has_table_privilege('headrace_island', oid, 'SELECT')
        LOOP
            EXECUTE format('GRANT SELECT ON %s TO headrace_island', relation);
        END LOOP;
    END LOOP;
END $$"""

OF_DATAFLOW = Template("""\
DO $$$$ BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = '$reader') THEN
        CREATE ROLE $reader NOLOGIN;  -- GRANT $reader TO whoever may read $dataflow
    END IF;
END $$$$;
GRANT USAGE ON SCHEMA "$dataflow" TO $reader;
GRANT SELECT ON ALL TABLES IN SCHEMA "$dataflow" TO $reader;
ALTER DEFAULT PRIVILEGES FOR ROLE $migrator IN SCHEMA "$dataflow" GRANT SELECT ON TABLES TO $reader;
""")


def script(dataflows: Iterable[Dataflow]) -> str:
    """Write the statements that make them."""
    made = OF_MIGRATOR.substitute(migrator=MIGRATOR, island=ISLAND) + _schema("headrace")
    return "\n".join([made, *(_of(flow.name) for flow in dataflows)])


def let_island_read(connection: Connection, dataflow: str) -> None:
    """Let queries read the ledger and a dataflow's tables, as a role that can do nothing else."""
    schemas = sql.SQL(", ").join(map(sql.Literal, ("headrace", *tables.schemas(dataflow))))
    connection.execute(sql.SQL(LET_ISLAND_READ).format(schemas=schemas))


def _of(dataflow: str) -> str:
    schemas = "".join(map(_schema, tables.schemas(dataflow)))
    reader = READER + dataflow
    return schemas + OF_DATAFLOW.substitute(dataflow=dataflow, reader=reader, migrator=MIGRATOR)


def _schema(name: str) -> str:
    return OF_SCHEMA.substitute(schema=name, migrator=MIGRATOR)
