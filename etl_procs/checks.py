"""Checks of what is declared: that things are what they are named for, and bodies can be called."""

import inspect
import re
from collections.abc import Callable, Iterable
from typing import Any, get_args

from etl_procs.columns import Column, Columns, Type
from etl_procs.model import Stream, Window
from etl_procs.rules import ByInterval, Rule
from headrace.errors import DefinitionError

AGGREGATE = re.compile(r"\s*(?:count\(\s*\*\s*\)|sum\(\s*(?P<column>[a-z_0-9]+)\s*\))\s*")


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
    column = column_of(of, name, columns)
    if column.type is Type.REAL or not column.required:
        raise DefinitionError(
            f"{of}: its key {name} is {column.type.value}"
            + ("" if column.required else ", and may be NULL"),
            hint="Declare it INTEGER NOT NULL or TEXT NOT NULL: each key has one partition.",
        )


def check_event_time(of: str, name: str, columns: Columns) -> None:
    """Refuse a column that does not always tell an event time."""
    column = column_of(of, name, columns)
    if column.type is not Type.INTEGER or not column.required:
        raise DefinitionError(
            f"{of}: the event time {name} is {column.type.value}"
            + ("" if column.required else ", and may be NULL"),
            hint=f"Declare it {name} INTEGER NOT NULL: milliseconds since 1970, for example.",
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
