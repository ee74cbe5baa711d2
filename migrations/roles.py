"""The roles of a warehouse: one that moves rows, and for each dataflow one that may read it."""

from collections.abc import Iterable
from string import Template

from etl_procs.dataflow import Dataflow
from migrations import tables

MIGRATOR = "headrace_migrator"
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
    made = OF_MIGRATOR.substitute(migrator=MIGRATOR) + _schema("headrace")
    return "\n".join([made, *(_of(flow.name) for flow in dataflows)])


def _of(dataflow: str) -> str:
    schemas = "".join(map(_schema, tables.schemas(dataflow)))
    reader = READER + dataflow
    return schemas + OF_DATAFLOW.substitute(dataflow=dataflow, reader=reader, migrator=MIGRATOR)


def _schema(name: str) -> str:
    return OF_SCHEMA.substitute(schema=name, migrator=MIGRATOR)
