"""A peer of analytic queries: PostgreSQL over foreign tables, which another PostgreSQL holds.

Its module is not among those that Headrace brings: it comes with the jar of a PostgreSQL of the
same version, and is declared as its extension would.
"""

import io
import tarfile
import zipfile
from pathlib import Path

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from bench import peer_jars, postgres

DATABASE = "abroad"
WRAPPER = """
CREATE FUNCTION handler() RETURNS fdw_handler AS {module}, 'postgres_fdw_handler' LANGUAGE C STRICT;
CREATE FUNCTION validator(text[], oid) RETURNS void AS {module}, 'postgres_fdw_validator'
    LANGUAGE C STRICT;
CREATE FOREIGN DATA WRAPPER postgres_fdw HANDLER handler VALIDATOR validator;
CREATE SERVER merged FOREIGN DATA WRAPPER postgres_fdw
    OPTIONS (host {host}, port {port}, dbname {dbname}, fetch_size '10000');
CREATE USER MAPPING FOR CURRENT_USER SERVER merged OPTIONS (user {user}, password {password});
CREATE SCHEMA {schema};
IMPORT FOREIGN SCHEMA {schema} FROM SERVER merged INTO {schema};
"""


def url(conninfo: str, merged: str, schema: str, folder: Path) -> str:
    """Make a database of foreign tables, which are those of a schema of another one."""
    module = _module(folder)
    with psycopg.connect(conninfo, autocommit=True) as server:
        server.execute(f"CREATE DATABASE {DATABASE}")
    there = make_conninfo(conninfo, dbname=DATABASE)
    at = conninfo_to_dict(postgres.url(make_conninfo(conninfo, dbname=merged)))
    wanted = {name: sql.Literal(str(at[name])) for name in ("host", "port", "dbname", "user")}
    declared = sql.SQL(WRAPPER).format(
        module=sql.Literal(str(module)),
        password=sql.Literal(str(at["password"])),
        schema=sql.Identifier(schema),
        **wanted,
    )
    with psycopg.connect(there, autocommit=True) as server:
        server.execute(declared)
        for (name,) in server.execute("SELECT relname FROM pg_class WHERE relkind = 'f'"):
            server.execute(sql.SQL("ANALYZE {}").format(sql.Identifier(schema, name)))
    return postgres.url(there)


def _module(folder: Path) -> Path:
    """Unpack the module, and what it is linked with; give it."""
    with zipfile.ZipFile(peer_jars.modules()) as jar:
        (name,) = [name for name in jar.namelist() if name.endswith(".txz")]
        with tarfile.open(fileobj=io.BytesIO(jar.read(name))) as packed:
            wanted = [m for m in packed if m.name.lstrip("./").startswith("lib/")]
            packed.extractall(folder / "modules", wanted, filter="data")
    return folder / "modules" / "lib" / "postgresql" / "postgres_fdw.so"
