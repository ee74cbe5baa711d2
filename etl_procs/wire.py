"""The wire: how a border stream's tuples are written in its Kafka topic, and come there.

All of it is values. `ingest` reads and writes by them; docs/wire-format.md says what the bytes are.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import KW_ONLY, dataclass, field
from enum import Enum
from math import inf
from typing import Any

from etl_procs import schema
from etl_procs.columns import Columns, Type
from headrace.errors import DefinitionError

PARTITIONS_MAX = 1_000
SMOOTHED_MAX = 10_000


class Unknown(Enum):
    """What becomes of fields that are no column. A column's name in its place keeps them there."""

    IGNORE = "ignore"
    """They are passed over."""
    REJECT = "reject"
    """Their tuple is a dead letter."""


@dataclass(frozen=True, slots=True)
class Json:
    """A tuple is a JSON object, whose keys are the columns' names."""


@dataclass(frozen=True, slots=True)
class Delimited:
    """A tuple is a line of fields in the order of the columns, with `separator` between them.

    With a `quote`, a field may stand between two of it, and hold separators and line ends; a quote
    within is written twice. A field that is `null`, and not quoted, is NULL; with None, none is.
    Files with a `header` begin with the fields' names, in whatever order.
    """

    separator: str
    _: KW_ONLY
    quote: str = ""
    null: str | None = ""
    header: bool = False

    def __post_init__(self) -> None:
        if type(self.header) is not bool:
            _refuse(f"delimited: header is {self.header!r}", "Give True or False.")
        if not isinstance(self.separator, str) or not 1 <= len(self.separator) <= 8:
            _refuse(f"delimited: the separator is {self.separator!r}", "Give 1 to 8 characters.")
        if not isinstance(self.quote, str) or len(self.quote.encode()) > 1:
            _refuse(f"delimited: the quote is {self.quote!r}", "Give one ASCII character; or none.")
        if self.null is not None and not (
            isinstance(self.null, str) and self.separator not in self.null
        ):
            _refuse(f"delimited: null is {self.null!r}", "Give the text of a field; or None.")
        if set(self.separator + self.quote) & set("\r\n\0\x1e") or self.quote in (
            *self.separator,
            "\\",
        ):
            _refuse(
                f"delimited: separator {self.separator!r}, quote {self.quote!r} cannot be told "
                "apart from the text",
                "Leave out line ends, NUL, \\x1e, and a quote that is in the separator.",
            )


@dataclass(frozen=True, slots=True)
class FixedWidth:
    """A tuple is a line of fields, each of so many characters: one width for each column, in order.

    A width below 0 passes over as many characters. Spaces around a field are no part of it, and a
    field of spaces is NULL. The last fields may be cut short, or missing.
    """

    widths: tuple[int, ...]

    def __init__(self, *widths: int) -> None:
        object.__setattr__(self, "widths", widths)
        if not widths or not all(type(w) is int and 0 < abs(w) <= 1_000_000 for w in widths):
            _refuse(f"fixed_width: the widths are {widths!r}", "Give whole numbers other than 0.")


@dataclass(frozen=True, slots=True)
class Xml:
    """A tuple is an element called `record` with all that is in it, somewhere in a document.

    A column is found at its path from there: `Name/First`, `@id`, `Customer/@id`; without a path,
    in the child element of its own name. An absent element is NULL; an empty one is the empty text,
    which for a number is NULL too.
    """

    record: str
    paths: Mapping[str, str] = field(default_factory=dict)

    def __init__(self, record: str, /, **paths: str) -> None:
        object.__setattr__(self, "record", record)
        object.__setattr__(self, "paths", paths)
        for path in (record, *paths.values()):
            if not isinstance(path, str):
                _refuse(f"xml: {path!r} is no path", "Write it as in Customer/Name or @id.")
            *elements, last = path.split("/")
            names = [*elements, last.removeprefix("@") if path is not record else last]
            if not all(_is_xml_name(name) for name in names):
                _refuse(f"xml: {path!r} is no path", "Write it as in Customer/Name or @id.")


@dataclass(frozen=True, slots=True)
class Avro:
    """A tuple is an Avro datum of a record, written by `schema` (JSON); its fields are columns."""

    schema: str

    def __post_init__(self) -> None:
        schema.read(self.schema)


Format = Json | Delimited | FixedWidth | Xml | Avro
delimited, fixed_width, xml, avro = Delimited, FixedWidth, Xml, Avro


class Route(Enum):
    """Which partition of its topic a tuple goes to. A column's name in its place: that of its key.

    A number in its place names the partition.
    """

    SOURCE = "source"
    """All tuples of a source go to one, in their order."""
    SPREAD = "spread"
    """A source's frames go to all in turn."""


@dataclass(frozen=True, slots=True)
class Mean:
    """Smooths a column: the mean of the `last` values, for each value of the column `by`."""

    column: str
    _: KW_ONLY
    last: int
    by: str = ""

    def __post_init__(self) -> None:
        if type(self.last) is not int or not 1 <= self.last <= SMOOTHED_MAX:
            _refuse(
                f"the mean of {self.column} is that of the last {self.last!r}",
                f"Give a whole number from 1 to {SMOOTHED_MAX:,}.",
            )


@dataclass(frozen=True, slots=True)
class Changed:
    """Thins a column out: a tuple is sent if its value is `least` away from the last that was."""

    column: str
    _: KW_ONLY
    least: float
    by: str = ""

    def __post_init__(self) -> None:
        if type(self.least) not in (int, float) or not 0 <= self.least < inf:
            _refuse(
                f"{self.column} changes by at least {self.least!r}", "Give a number, 0 or above."
            )


@dataclass(frozen=True, slots=True)
class Clean:
    """What the collector does near the source, before the wire, in this order.

    `rename` gives fields new names: `rename={"the old": "the new"}`. `keep` keeps these fields and
    no others, and `drop` all but these. `where` is asked with the texts of a tuple's fields, and
    says whether it is sent. `smooth` is applied last.
    """

    _: KW_ONLY
    columns: tuple[str, ...] = ()
    """The fields of the source, where neither a header nor the tuples name them."""
    rename: Mapping[str, str] = field(default_factory=dict)
    keep: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    where: Callable[[Mapping[str, Any]], bool] | None = None
    smooth: tuple[Mean | Changed, ...] = ()

    def __post_init__(self) -> None:
        for what in ("columns", "keep", "drop"):
            names = getattr(self, what)
            if not isinstance(names, tuple) or not all(isinstance(n, str) and n for n in names):
                _refuse(f"clean: {what} is {names!r}", f'Write it as {what}=("one", "another").')
            if len(set(names)) < len(names):
                _refuse(f"clean: {what} names a field twice: {', '.join(names)}", "Name it once.")
        renamed = self.rename.items() if isinstance(self.rename, Mapping) else [("", None)]
        if not all(isinstance(name, str) and name for pair in renamed for name in pair):
            _refuse(f"clean: rename is {self.rename!r}", 'Write it as {"the old": "the new"}.')
        if len(set(self.rename.values())) < len(self.rename):
            _refuse(f"clean: rename makes two fields one: {self.rename!r}", "Give each its own.")
        if self.keep and self.drop:
            _refuse("clean: it keeps fields and drops others", "Name those, or these.")
        if self.where is not None and not callable(self.where):
            _refuse(f"clean: where is {self.where!r}", "Give a function of a tuple's fields.")
        if not isinstance(self.smooth, tuple) or not all(
            isinstance(smooth, Mean | Changed) for smooth in self.smooth
        ):
            _refuse(f"clean: smooth is {self.smooth!r}", "Write it as smooth=(Mean(...),).")

    def check(
        self,
        of: str,
        columns: Columns,
        format_: Format,
        written: Collection[str],
        unknown: Unknown | str,
    ) -> None:
        """Refuse what does not fit a stream's columns, of which some are `written` in its text."""
        if isinstance(format_, Xml | Avro):
            _refuse(f"{of} is cleaned, and has no fields of text", "Clean JSON, or lines.")
        if self.columns and not (isinstance(format_, Delimited) and not format_.header):
            _refuse(f"{of} names the fields of its source twice", "Leave Clean.columns out.")
        if self.rename and isinstance(format_, FixedWidth):
            _refuse(f"{of} renames fields that have no names", "A width is that of its column.")
        leaves_out = isinstance(format_, FixedWidth) and (self.keep or self.drop)
        if leaves_out and unknown is not Unknown.IGNORE:
            _refuse(
                f"{of} leaves fields out, and with them what is behind the last one",
                "Pass over unknown fields; or leave keep and drop out.",
            )
        gone = self.rename.keys() - self.rename.values()
        lost = gone & {*self.keep, *self.drop}
        if isinstance(format_, FixedWidth) or (
            isinstance(format_, Delimited) and not format_.header
        ):
            known = self.columns or tuple(written)
            lost |= self.rename.keys() - set(known)
            lost |= {*self.keep, *self.drop} - {self.rename.get(name, name) for name in known}
        if lost:
            _refuse(
                f"{of} cleans {', '.join(sorted(lost))}: no fields",
                "Name one of them, by its new name.",
            )
        # To leave out what is no column saves its bytes; to keep it serves `where` alone, but for
        # where unknown fields are kept: otherwise a name was misspelt, and its column is NULL.
        useless = set(self.keep) - set(written)
        if useless and (
            unknown is Unknown.REJECT or (unknown is Unknown.IGNORE and not self.where)
        ):
            _refuse(
                f"{of} keeps {', '.join(sorted(useless))}, and has no such columns",
                f"Name some of these: {', '.join(written)}.",
            )
        for column in columns.columns:
            is_dropped = column.name in self.drop or (self.keep and column.name not in self.keep)
            if column.required and column.name in written and is_dropped:
                _refuse(f"{of} leaves out {column.name}, which is NOT NULL", "Keep it.")
        for smooth in self.smooth:
            _check_smooth(of, smooth, columns, format_)


def _check_smooth(of: str, smooth: Mean | Changed, columns: Columns, format_: Format) -> None:
    types = {column.name: column.type for column in columns.columns}
    if smooth.by and smooth.by not in types:
        _refuse(f"{of} is smoothed by {smooth.by}, which is no column of it", "Name one.")
    fits = (Type.REAL,) if isinstance(smooth, Mean) else (Type.REAL, Type.INTEGER)
    if types.get(smooth.column) not in fits:
        needed = " or ".join(type_.value for type_ in fits)
        _refuse(f"{of} smooths {smooth.column}, which is no {needed} column", "Name another.")
    if isinstance(smooth, Mean) and isinstance(format_, FixedWidth):
        _refuse(f"{of}: a mean has no fixed width", "Leave it out, or make it in a procedure.")


@dataclass(frozen=True, slots=True)
class Wire:
    """How the tuples of a border stream are written in its topic, and come there."""

    format: Format = field(default_factory=Json)
    _: KW_ONLY
    unknown: Unknown | str = Unknown.IGNORE
    time: str = ""
    """The INTEGER column that is taken from the record's header `time`."""
    route: Route | str | int = Route.SOURCE
    clean: Clean | None = None
    partitions: int | None = None
    """Of the topic, when it is created; `broker.topic_partitions` otherwise."""
    retention_h: float | None = None
    """How long the topic keeps records, when it is created; as the broker does otherwise."""

    def check(self, of: str, columns: Columns) -> None:
        """Refuse what does not fit the columns of a stream."""
        self._check_kinds(of)
        types = {column.name: column.type for column in columns.columns}
        for what, name, type_ in [
            ("keeps unknown fields", self.unknown, Type.TEXT),
            ("takes the time of the header", self.time, Type.INTEGER),
        ]:
            if isinstance(name, str) and name and types.get(name) is not type_:
                _refuse(
                    f"{of} {what} in {name}, which is no {type_.value} column",
                    f"Declare {name} {type_.value}, or name another.",
                )
        if isinstance(self.route, str) and self.route not in types:
            _refuse(f"{of} is routed by {self.route}, which is no column of it", "Name one.")
        written = [name for name in columns.names if name not in (self.time, self.unknown)]
        if isinstance(self.format, FixedWidth):
            given = sum(width > 0 for width in self.format.widths)
            if given != len(written):
                _refuse(
                    f"{of} has {len(written)} columns, and {given} widths", "Give each a width."
                )
        if self.clean:
            self.clean.check(of, columns, self.format, written, self.unknown)
        if isinstance(self.format, Xml) and self.format.paths.keys() - types.keys():
            lost = ", ".join(self.format.paths.keys() - types.keys())
            _refuse(f"{of} has paths for {lost}, which are no columns of it", "Leave them out.")
        if isinstance(self.format, Avro):
            schema.check(of, schema.read(self.format.schema), columns, written)

    def _check_kinds(self, of: str) -> None:
        partitions, hours, route = self.partitions, self.retention_h, self.route
        for what, fits, hint in [
            ("format", isinstance(self.format, Format), "Give one: delimited(...), say."),
            ("unknown", isinstance(self.unknown, Unknown | str), "Give Unknown.REJECT, say."),
            ("time", isinstance(self.time, str), "Name a column."),
            (
                "route",
                isinstance(route, Route | str)
                or (type(route) is int and 0 <= route < (partitions or PARTITIONS_MAX)),
                "Give Route.SOURCE or Route.SPREAD, name a column, or one of the partitions.",
            ),
            ("clean", self.clean is None or isinstance(self.clean, Clean), "Give Clean(...)."),
            (
                "partitions",
                partitions is None
                or (type(partitions) is int and 1 <= partitions <= PARTITIONS_MAX),
                f"Give a whole number from 1 to {PARTITIONS_MAX:,}.",
            ),
            (
                "retention_h",
                hours is None or (type(hours) in (int, float) and 0 < hours <= 1e9),
                "Give hours, more than 0.",
            ),
        ]:
            if not fits:
                _refuse(f"{of}: {what} is {getattr(self, what)!r:.80}", hint)


def _is_xml_name(name: str) -> bool:
    return bool(name) and all(c.isalnum() or c in "_-.:" for c in name)


def _refuse(what: str, hint: str) -> None:
    raise DefinitionError(what, hint=hint)
