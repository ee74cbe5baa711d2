"""The schema of Avro data: it is one of records, and these can be a stream's tuples."""

import json
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NoReturn

from etl_procs.columns import Columns, Type
from headrace.errors import DefinitionError

FITTING = {
    Type.INTEGER: {"int", "long"},
    Type.REAL: {"int", "long", "float", "double"},
    Type.TEXT: {"string", "enum"},
}
"""Avro's types that a column's values may have."""
NAMED = ("record", "error", "enum", "fixed")


def read(text: str) -> Any:
    """Read the text of a schema; refuse what is none of a record."""
    import fastavro  # here, because few streams need it

    try:
        schema = json.loads(text)
        fastavro.parse_schema(schema)
    except Exception as error:  # noqa: BLE001 - whatever it is led to
        _refuse(f"avro: the schema is none: {error!r:.200}", "Give the text of an .avsc file.")
    if not isinstance(schema, dict) or schema["type"] != "record":
        _refuse("avro: the schema is not that of a record", "Give one of type record.")
    parsed(schema)
    return schema


def parsed(schema: Any) -> Any:
    """Prepare a schema for data whose numbers and bytes are left as they are written.

    One that holds itself is refused: the library follows its data down without a limit, and 20 KB
    of them end the process that reads them, again and again. So is one with an array of what takes
    no bytes: ten bytes of its data are 2^62 items.
    """
    import fastavro

    made = fastavro.parse_schema(_physical(schema))
    if name := next(_holding_themselves(made, ()), None):
        _refuse(f"avro: {name} holds itself in the schema", "Give one that ends.")
    parts = list(_parts(made))
    named = {part["name"]: part for part in parts if part["type"] in NAMED}
    if any(_takes_nothing(part["items"], named) for part in parts if "items" in part):
        _refuse("avro: the items of an array take no bytes", "Give it items that hold something.")
    return made


def _parts(schema: Any) -> Iterator[Mapping[str, Any]]:
    """Give a schema and all that is defined within it."""
    if isinstance(schema, list):
        for each in schema:
            yield from _parts(each)
    elif isinstance(schema, dict):
        yield schema
        for within in [schema["type"], schema.get("items"), schema.get("values")]:
            yield from _parts(within)
        yield from _parts(schema.get("fields", []))


def _takes_nothing(schema: Any, named: Mapping[str, Any]) -> bool:
    """Tell whether data are written with no bytes at all. Of a union, at least its index is."""
    if isinstance(schema, str):
        return schema == "null" or (schema in named and _takes_nothing(named[schema], named))
    if isinstance(schema, list):
        return False
    if schema["type"] in ("record", "error"):
        return all(_takes_nothing(field["type"], named) for field in schema["fields"])
    return schema.get("size") == 0 or _takes_nothing(schema["type"], named)


def _holding_themselves(schema: Any, within: tuple[str, ...]) -> Iterator[str]:
    """Name what is meant within itself: a name is only known after its definition, or within it."""
    if isinstance(schema, str):
        yield from (name for name in within if name == schema)
    elif isinstance(schema, list):
        for each in schema:
            yield from _holding_themselves(each, within)
    else:
        inner = (*within, schema["name"]) if schema["type"] in ("record", "error") else within
        for field in schema.get("fields", ()):
            yield from _holding_themselves(field["type"], inner)
        for held in ("items", "values"):
            yield from _holding_themselves(schema.get(held, []), inner)


def _physical(schema: Any) -> Any:
    if isinstance(schema, dict):
        passed_over = ("logicalType", "__fastavro_parsed__", "__named_schemas")
        return {name: _physical(of) for name, of in schema.items() if name not in passed_over}
    return [_physical(each) for each in schema] if isinstance(schema, list) else schema


def check(of: str, schema: Any, columns: Columns, written: Collection[str]) -> None:
    """Refuse a schema none of whose data would fit the columns."""
    parts = [part for part in _parts(schema) if part["type"] in NAMED]
    named = {part["name"].rpartition(".")[2]: part["type"] for part in parts}
    types = {field["name"]: set(_types(field["type"], named)) for field in schema["fields"]}
    for column in columns.columns:
        found = types.get(column.name, {"null"})
        if column.name not in written or found & FITTING[column.type]:
            continue
        if column.required and found == {"null"}:
            _refuse(
                f"{of} has no {column.name} in its Avro schema, and it is NOT NULL",
                "Name the columns as the schema does its fields, or let it be NULL.",
            )
        if found != {"null"}:
            _refuse(
                f"{of}: {column.name} is {' or '.join(sorted(found))} in the Avro schema, which is "
                f"never {column.type.value}",
                "Declare the column by what its field holds.",
            )


def _types(schema: Any, named: Mapping[str, str]) -> Iterator[str]:
    """Name the types that a datum may have: each of a union, and what a name stands for."""
    if isinstance(schema, dict):
        yield from _types(schema["type"], named)
    elif isinstance(schema, list):
        for each in schema:
            yield from _types(each, named)
    else:
        yield named.get(schema.rpartition(".")[2], schema)


def _refuse(what: str, hint: str) -> NoReturn:
    raise DefinitionError(what, hint=hint)
