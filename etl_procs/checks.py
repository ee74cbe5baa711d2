"""Checks of what is declared: that things are what they are named for, and bodies can be called."""

import inspect
import re
import sqlite3
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, get_args

from etl_procs.columns import Column, Columns, Type, check_bare, check_name
from etl_procs.model import Foreign, Lookup, Procedure, Strategy, Stream, Table, Window
from etl_procs.rules import ByInterval, Rule
from etl_procs.wire import Format, Wire
from headrace.errors import DefinitionError

PARTITIONS_MAX = 64
DEFERRED = re.compile(r"\bINITIALLY\s+DEFERRED\b", re.IGNORECASE)
AGGREGATE = re.compile(r"\s*(?:count\(\s*\*\s*\)|sum\(\s*(?P<column>[a-z_0-9]+)\s*\))\s*")


def check_flow(name: str, partitions: object) -> None:
    """Refuse a dataflow that no warehouse, or no machine, could hold."""
    check_name(name, "dataflow")
    if name.endswith(("_main", "_delta")):
        raise DefinitionError(
            f"dataflow {name}: what ends so is the name of a warehouse's schema",
            hint="Give it another name: of a dataflow x, x_main and x_delta are schemas.",
        )
    if not isinstance(partitions, int) or not 1 <= partitions <= PARTITIONS_MAX:
        raise DefinitionError(
            f"dataflow {name} has {partitions!r} partitions",
            hint=f"Give it 1 to {PARTITIONS_MAX} of them.",
        )


def things(of: str, how: str, given: object, kind: Any) -> tuple[Any, ...]:
    """Give one thing or several as a tuple; refuse what is of another kind."""
    several = isinstance(given, Iterable) and not isinstance(given, str)
    some = tuple(given) if several else (given,)  # type: ignore[arg-type]
    for thing in some:
        if not isinstance(thing, kind):
            kinds = " or ".join(each.__name__ for each in get_args(kind) or (kind,))
            raise DefinitionError(
                f"{of} {how} {thing!r:.80}, which is no {kinds}",
                hint="Give the thing itself, as it was declared, or a list of such: not its name.",
            )
    return some


def check_body(of: str, body: Callable[..., Any], *batches: str, named: Iterable[str] = ()) -> None:
    """Refuse a body that cannot be called as it will be, or does not run when it is called."""
    try:
        signature = inspect.signature(body, follow_wrapped=False)
        signature.bind("tx", *batches, **dict.fromkeys(named))
    except TypeError as error:
        arguments = ", ".join(["tx", *batches, *(f"{name}=..." for name in named)])
        raise DefinitionError(
            f"{of} cannot be called as {body.__name__}({arguments}): {error}",
            hint=f"Declare the function so that it can: its parameters are {signature}.",
        ) from None
    inner = inspect.unwrap(body)
    if inspect.isgeneratorfunction(inner) or inspect.iscoroutinefunction(inner):
        raise DefinitionError(
            f"{body.__name__} would not run when it is called: it yields, or is async",
            hint="Write a plain function; it may return rows, and emit them.",
        )


def column_of(of: str, name: str, columns: Columns) -> Column:
    """Find a column by its name."""
    for column in columns.columns:
        if column.name == name:
            return column
    raise DefinitionError(
        f"{of} has no column {name}", hint=f"Its columns are: {', '.join(columns.names)}."
    )


def check_key(of: str, name: str, columns: Columns) -> None:
    """Refuse a key that does not always say which partition it belongs to."""
    hint = "Declare it INTEGER NOT NULL or TEXT NOT NULL: each key has one partition."
    _check_always(of, "key", column_of(of, name, columns), (Type.INTEGER, Type.TEXT), hint)


def check_event_time(of: str, name: str, columns: Columns) -> None:
    """Refuse a column that does not always tell an event time."""
    hint = f"Declare it {name} INTEGER NOT NULL: milliseconds since 1970, for example."
    _check_always(of, "event time", column_of(of, name, columns), (Type.INTEGER,), hint)


def _check_always(of: str, what: str, column: Column, types: Collection[Type], hint: str) -> None:
    if column.type not in types or not column.required:
        null = "" if column.required else ", and may be NULL"
        raise DefinitionError(
            f"{of}: the {what} {column.name} is {column.type.value}{null}", hint=hint
        )


def check_constraints(of: str, columns: Columns) -> None:
    """Refuse a table whose constraints would fail where nobody could be blamed."""
    if DEFERRED.search(columns.sql):
        raise DefinitionError(
            f"{of} has a constraint that is INITIALLY DEFERRED: it would fail at the commit of "
            "a whole group, and none of its batches could be told from the others",
            hint="Let it be checked with each statement, as it is without these words.",
        )


def written(of: str, wire: object, columns: Columns) -> Wire:
    """Give how a stream's tuples are written in Kafka, or refuse it."""
    (how,) = things(of, "is written as", [wire], Wire | Format)
    if not isinstance(how, Wire):
        how = Wire(how)
    how.check(of, columns)
    return how


def check_interior(of: str, order: str, wire: Wire) -> None:
    """Refuse what a stream that a procedure gives cannot have."""
    if order or wire != Wire():
        raise DefinitionError(
            f"{of} has {'an order' if order else 'a wire'}, and no rule for its batches",
            hint="Give it a rule if it comes from outside; what a procedure gives has neither.",
        )


def check_counted(of: str, keys: Iterable[str], columns: Columns) -> None:
    """Refuse keys by which tuples of these columns could not be counted."""
    for key in keys:
        if not column_of(of, key, columns).required:
            raise DefinitionError(
                f"{of}: {key} may be NULL, and tuples are counted by it",
                hint=f"Declare {key} NOT NULL in the window.",
            )


def check_window(of: str, columns: Columns) -> None:
    """Refuse columns that a window's own SQL could not name."""
    for name in columns.names:
        check_bare(name, of)
        if name == "rowid":
            raise DefinitionError(
                f"{of} has a column rowid, by which SQLite keeps its tuples in order",
                hint="Give the column another name.",
            )


def check_corrections(
    of: str, late: Stream, columns: Columns, others: Iterable[Rule | None]
) -> None:
    """Refuse a stream that cannot take what is late."""
    wrong = ""
    if late.columns.columns != columns.columns:
        wrong = "has other columns"
    elif late.batches is not None:
        wrong = "has a batch rule of its own"
    elif any(isinstance(rule, ByInterval) and rule.late is late for rule in others):
        wrong = "takes what is late of another one already"
    if wrong:
        raise DefinitionError(
            f"{of} gives what is late to {late.name}, which {wrong}",
            hint="Declare a stream of the same columns for it alone, without a rule.",
        )


def check_outlet(
    of: str, columns: Columns, key: Iterable[str], indexes: Iterable[Iterable[str]]
) -> None:
    """Refuse a key or indexes that an outlet of these columns cannot have."""
    for name in {name for names in indexes for name in names}:
        column_of(of, name, columns)
    for name in key:
        if not column_of(of, name, columns).required:
            raise DefinitionError(
                f"{of}: its key {name} may be NULL", hint=f"Declare {name} NOT NULL."
            )


def check_lookup(of: str, lookup: Lookup) -> None:
    """Refuse a lookup that could find two rows, or could not tell a row from none."""
    things(of, "is over", [lookup.table], Table | Foreign)
    things(of, "is answered by", [lookup.strategy], Strategy)
    table, columns = lookup.table, lookup.table.columns
    by = (*lookup.key, *([lookup.at] if lookup.at else []))
    for name in by:
        if column_of(of, name, columns).type is Type.REAL:
            raise DefinitionError(
                f"{of}: {name} is REAL, and looked up by", hint="Look up by INTEGER or TEXT."
            )
    given = [column_of(of, name, columns) for name in lookup.gives]
    if not lookup.key or len(set(by)) < len(by) or len(set(given)) < len(given):
        raise DefinitionError(
            f"{of} has no key, or names a column twice",
            hint="Name each column once in key and at, and once in gives.",
        )
    if not any(column.required for column in given):
        raise DefinitionError(
            f"{of} gives nothing that is NOT NULL: a row could not be told from none",
            hint="Give a column that is NOT NULL as well, such as the surrogate key.",
        )
    if lookup.or_earliest and not lookup.at:
        raise DefinitionError(
            f"{of} gives the earliest version, and has none: a key has one row",
            hint="Name the column from whose value on a version is in force: at=...",
        )
    _check_strategy(of, lookup)
    if not _is_unique(table.columns.sql, by):
        names = ", ".join(by)
        raise DefinitionError(
            f"{of} could find two rows: {table.name} is not UNIQUE ({names})",
            hint=f"Declare it in the table, in this order: UNIQUE ({names}); texts compare by "
            "their bytes, without COLLATE.",
        )


def check_foreign(of: str, foreign: Foreign) -> Foreign:
    """Refuse a table of a warehouse that could not be named, or told to have changed."""
    schema, dot, name = foreign.name.partition(".")
    if not dot:
        raise DefinitionError(
            f"{of} names no schema", hint=f"Write it as SCHEMA.TABLE: public.{foreign.name}."
        )
    check_name(schema, of)
    check_name(name, of)
    if foreign.version:
        column_of(of, foreign.version, foreign.columns)
    return foreign


def _check_strategy(of: str, lookup: Lookup) -> None:
    """Refuse a strategy that its table cannot have, and a copy without an age."""
    strategy, is_foreign = lookup.strategy, isinstance(lookup.table, Foreign)
    if is_foreign is (strategy is Strategy.OWNED) and strategy is not Strategy.AUTO:
        raise DefinitionError(
            f"{of} is to be answered as {strategy.value}, and its table is "
            f"{'a warehouse' if is_foreign else 'the core'}'s",
            hint="A table of the core is owned; one of a warehouse, declared by flow.foreign, is "
            "asked (warehouse) or copied (replica).",
        )
    copies = is_foreign and strategy is not Strategy.WAREHOUSE
    if copies is not (lookup.max_age_s > 0):
        raise DefinitionError(
            f"{of} does not say how old a copy may be"
            if copies
            else f"{of} says how old a copy may be, and has none",
            hint="Give it max_age_s=60, for example; or strategy=Strategy.WAREHOUSE."
            if copies
            else "Leave max_age_s away.",
        )


def _is_unique(sql: str, by: tuple[str, ...]) -> bool:
    """Tell whether a table has an index, in this order, in which no two rows are equal."""
    wanted = [(name, "BINARY") for name in by]
    with sqlite3.connect(":memory:") as scratch:
        scratch.execute(f"CREATE TABLE t ({sql}) STRICT")
        # INTEGER PRIMARY KEY is the rowid itself, and has no index.
        keys = scratch.execute("SELECT name FROM pragma_table_info('t') WHERE pk").fetchall()
        # In an index that names no collation, columns have their own.
        plain = ", ".join(f'"{name}"' for name, _ in wanted)
        scratch.execute(f"CREATE INDEX plain ON t ({plain})")
        found = {
            (name, bool(unique)): scratch.execute(
                "SELECT name, coll FROM pragma_index_xinfo(?) WHERE key ORDER BY seqno", [name]
            ).fetchall()
            for name, unique in scratch.execute(
                "SELECT name, \"unique\" FROM pragma_index_list('t')"
            ).fetchall()
        }
    if found["plain", False] != wanted:
        return False
    return keys == [tuple(by)] or any(
        unique and index == wanted for (_, unique), index in found.items()
    )


def nested(
    dataflow: str,
    bodies: Iterable[Callable[..., Any]],
    procedures: Mapping[str, Procedure],
    nests: Iterable[tuple[str, ...]],
) -> tuple[str, ...]:
    """Give the names of procedures that are to be one group."""
    names: list[str] = []
    for body in bodies:
        name = getattr(body, "__name__", repr(body))
        if name not in procedures or procedures[name].body is not body:
            raise DefinitionError(
                f"dataflow {dataflow} nests {name}, which is none of its procedures",
                hint="Nest the functions that @procedure decorates.",
            )
        if any(name in nest for nest in nests) or name in names:
            raise DefinitionError(
                f"procedure {dataflow}.{name} is nested twice",
                hint="A procedure belongs to one group.",
            )
        names.append(name)
    return tuple(names)


def summed(of: str, value: str, window: Window) -> str:
    """Give the column that an aggregate sums; none if it counts."""
    found = AGGREGATE.fullmatch(value)
    if not found:
        raise DefinitionError(
            f"{of}: {value!r} cannot be kept as tuples come and go",
            hint="Use count(*) or sum(column); others are a query over the window.",
        )
    name = found["column"] or ""
    if name:
        column = column_of(of, name, window.columns)
        if column.type is not Type.INTEGER:
            raise DefinitionError(
                f"{of}: sum({name}) of {column.type.value} is not exact when tuples leave again",
                hint="Sum an INTEGER column (cents, thousandths), or query the window.",
            )
    return name
