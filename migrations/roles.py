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
DO $$$$ BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = '$migrator') THEN
        CREATE ROLE $migrator LOGIN;  -- give it a password: \\password $migrator
    END IF;
    EXECUTE format('GRANT CONNECT, CREATE, TEMPORARY ON DATABASE %I TO $migrator',
        current_database());
END $$$$;
GRANT pg_read_all_stats TO $migrator;
CREATE SCHEMA IF NOT EXISTS headrace AUTHORIZATION $migrator;
""")

OF_DATAFLOW = Template("""\
DO $$$$ BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = '$reader') THEN
        CREATE ROLE $reader NOLOGIN;  -- GRANT $reader TO whoever may read $dataflow
    END IF;
END $$$$;
$schemas
GRANT USAGE ON SCHEMA "$dataflow" TO $reader;
GRANT SELECT ON ALL TABLES IN SCHEMA "$dataflow" TO $reader;
ALTER DEFAULT PRIVILEGES FOR ROLE $migrator IN SCHEMA "$dataflow" GRANT SELECT ON TABLES TO $reader;
""")


def script(dataflows: Iterable[Dataflow]) -> str:
    """Write the statements that make them."""
    return "\n".join(
        [OF_MIGRATOR.substitute(migrator=MIGRATOR), *(_of(flow.name) for flow in dataflows)]
    )


def _of(dataflow: str) -> str:
    schemas = "\n".join(
        f'CREATE SCHEMA IF NOT EXISTS "{schema}" AUTHORIZATION {MIGRATOR};'
        for schema in tables.schemas(dataflow)
    )
    return OF_DATAFLOW.substitute(
        dataflow=dataflow, reader=READER + dataflow, migrator=MIGRATOR, schemas=schemas
    )
