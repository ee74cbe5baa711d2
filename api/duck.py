"""DuckDB: opened so that it reaches what is handed to it, and at most one folder beside that."""

from pathlib import Path

import duckdb

BATCH_ROWS = 16_384

TYPES = {
    "smallint": "SMALLINT",
    "integer": "INTEGER",
    "bigint": "BIGINT",
    "double precision": "DOUBLE",
    "numeric": "VARCHAR",
    "text": "VARCHAR",
    "boolean": "BOOLEAN",
    "date": "DATE",
    "timestamp without time zone": "TIMESTAMP",
}
"""DuckDB's types, in which what PostgreSQL says of a column is written."""


def locked(memory_mb: int, folder: Path | None = None) -> duckdb.DuckDBPyConnection:
    """Open one in memory: no file but those of the folder, no network, no setting."""
    connection = duckdb.connect(
        ":memory:",
        config={
            "memory_limit": f"{memory_mb}MB",
            "temp_directory": "",
            "autoload_known_extensions": "false",
            "autoinstall_known_extensions": "false",
            "allow_community_extensions": "false",
            "python_enable_replacements": "false",
        },
    )
    if folder is not None:
        connection.execute(f"SET allowed_directories = [{quoted(str(folder))}]")
    connection.execute("SET enable_progress_bar = false")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
    return connection


def quoted(text: str) -> str:
    """Write a text as DuckDB's SQL has it."""
    return "'" + text.replace("'", "''") + "'"


def cast(value: str, type_: str) -> str:
    """Write a value as PostgreSQL's type has it: DuckDB leaves out the 0 of 0.5."""
    text = f"CAST({value} AS {TYPES[type_]})"
    if type_ != "numeric":
        return text
    return (
        f"CASE WHEN starts_with({text}, '.') THEN '0' || {text} "
        f"WHEN starts_with({text}, '-.') THEN '-0' || substr({text}, 2) ELSE {text} END"
    )
