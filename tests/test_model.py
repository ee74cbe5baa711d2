"""Definitions: what is accepted, what is refused, and that the message names the fix."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from flows import EXAMPLE, dataflow

from etl_procs import (
    Batch,
    Dataflow,
    Transaction,
    Wire,
    avro,
    by_count,
    by_interval,
    by_punctuation,
    delimited,
    fixed_width,
    last_tuples,
    loader,
    xml,
)
from etl_procs.columns import Column, Type, parse_table
from etl_procs.dataflow import DEFAULT_WIRE
from headrace.errors import DefinitionError


def body(tx: Transaction, batch: Batch) -> None:
    """Do nothing."""


def test_columns_are_what_sqlite_makes_of_them() -> None:
    parsed = parse_table(
        'a INTEGER PRIMARY KEY, b TEXT NOT NULL, c REAL CHECK (c > 0), "d" TEXT', "t"
    )
    assert parsed.columns == (
        Column("a", Type.INTEGER, required=True),
        Column("b", Type.TEXT, required=True),
        Column("c", Type.REAL, required=False),
        Column("d", Type.TEXT, required=False),
    )


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ("a INTEGER,", "do not make a table"),
        ("a VARCHAR(10)", r"column a has the type VARCHAR\(10\)"),
        ("a", "column a has no type"),
        ("a BLOB", "column a has the type BLOB"),
        ("a TEXT, a TEXT", "duplicate column"),
        ("Upper TEXT", "'Upper' is not a name"),
        ('"two words" TEXT', "'two words' is not a name"),
        ("_hidden TEXT", "'_hidden' is not a name"),
    ],
)
def test_bad_columns_are_refused(columns: str, message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        Dataflow("f").table("t", columns)


WAREHOUSES_OWN = [
    ("a BOOLEAN", Column("a", Type.BOOLEAN, required=False)),
    ("a date NOT NULL", Column("a", Type.DATE, required=True)),
    ("a TIMESTAMP", Column("a", Type.TIMESTAMP, required=False)),
    ("a NUMERIC(15,2) NOT NULL", Column("a", Type.NUMERIC, required=True, precision=15, scale=2)),
    ("a numeric ( 38 , 38 )", Column("a", Type.NUMERIC, required=False, precision=38, scale=38)),
    ("a NUMERIC(9)", Column("a", Type.NUMERIC, required=False, precision=9)),
]


@pytest.mark.parametrize(("columns", "column"), WAREHOUSES_OWN)
def test_an_outlet_may_have_the_warehouses_types_and_nothing_else_may(
    columns: str, column: Column
) -> None:
    assert Dataflow("f").outlet("o", columns).columns.columns == (column,)
    refused = (
        r"column a has the type .*, which only an outlet's column may have\n.*INTEGER, REAL, T"
    )
    f = Dataflow("f")
    declarations: list[Callable[[], object]] = [
        lambda: f.stream("s", columns),
        lambda: f.table("t", columns),
        lambda: f.window("w", columns, last_tuples(1)),
        lambda: f.call(arguments=columns)(body),
        lambda: f.call(returns=columns)(body),
    ]
    for declare in declarations:
        with pytest.raises(DefinitionError, match=refused):
            declare()


@pytest.mark.parametrize(
    "type_",
    ["NUMERIC", "NUMERIC(0)", "NUMERIC(39)", "NUMERIC(5,6)", "NUMERIC(5,-1)", "DECIMAL(5,2)",
     "TIMESTAMPTZ", "TIMESTAMP WITH TIME ZONE", "TIMESTAMP(3)", "BOOL", "BIGINT"],
)  # fmt: skip
def test_a_type_that_no_outlet_has_is_refused(type_: str) -> None:
    with pytest.raises(DefinitionError, match=r"column a has the type .*\n.*NUMERIC\(p, s\)"):
        Dataflow("f").outlet("o", f"a {type_}")


@pytest.mark.parametrize(
    "columns",
    ["a INTEGER PRIMARY KEY", "a TEXT UNIQUE", "a TEXT DEFAULT 'x'", "a INTEGER CHECK (a > 0)"],
)
def test_a_stream_or_an_outlet_has_no_constraints(columns: str) -> None:
    with pytest.raises(DefinitionError, match="has no meaning here"):
        Dataflow("f").stream("s", columns)
    with pytest.raises(DefinitionError, match="has no meaning here"):
        Dataflow("f").outlet("o", columns)


@pytest.mark.parametrize("name", ["", "Upper", "1st", "a-b", "a.b", "headrace_x", "pg_x", "x" * 49])
def test_bad_names_are_refused(name: str) -> None:
    with pytest.raises(DefinitionError, match="is not a name"):
        Dataflow(name)


def test_a_name_is_declared_once() -> None:
    flow = dataflow()
    for again in (flow.stream, flow.table, flow.outlet):
        flow_name = {"stream": "orders", "table": "shop_kept", "outlet": "sold"}[again.__name__]
        with pytest.raises(DefinitionError, match="is declared twice"):
            again(flow_name, "a TEXT")


@pytest.mark.parametrize("rows", [[(1,)], [("a", "b")], [(1, "a"), (1, "b")], [(2**70, "a")]])
def test_first_rows_must_fit(rows: list[tuple[int | str, ...]]) -> None:
    with pytest.raises(DefinitionError, match=r"table f\.t: its first rows do not fit: "):
        Dataflow("f").table("t", "a INTEGER PRIMARY KEY, b TEXT", rows=rows)


def test_a_procedure_uses_its_own_dataflow() -> None:
    with pytest.raises(DefinitionError, match="takes orders, which dataflow mine does not declare"):
        Dataflow("mine").procedure(takes=dataflow().streams["orders"])(body)


def test_a_dataflow_has_a_procedure_or_a_call() -> None:
    with pytest.raises(DefinitionError, match="dataflow shop has no procedure"):
        Dataflow("shop").check()
    only_calls = Dataflow("shop")
    only_calls.call()(alone)
    only_calls.check()


def test_the_names_of_routines_and_of_tables_are_not_shared() -> None:
    flow = dataflow()
    flow.procedure(takes=flow.streams["orders"])(body)
    for again in (flow.call(), flow.trigger(on=flow.streams["orders"])):
        with pytest.raises(DefinitionError, match=r"shop\.body is declared twice"):
            again(body)
    window = flow.window("recent", "n INTEGER NOT NULL", last_tuples(1))
    with pytest.raises(DefinitionError, match="is declared twice"):
        flow.table("recent", "n INTEGER")
    with pytest.raises(DefinitionError, match="is declared twice"):
        flow.aggregate("shop_kept", window, n="count(*)")


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (lambda: by_count(0), "by_count: tuples is 0"),
        (lambda: by_count(5, linger_s=0), "by_count: linger_s is 0"),
        (lambda: by_interval("t", -1), "by_interval: length is -1"),
        (lambda: by_punctuation(timeout_s=-2), "by_punctuation: timeout_s is -2"),
    ],
)
def test_a_rule_that_cuts_nothing_is_refused(rule: Callable[[], object], message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        rule()


@pytest.mark.parametrize(
    ("columns", "message"),
    [("t TEXT NOT NULL", "t is TEXT"), ("t INTEGER", "may be NULL"), ("n TEXT", "no column t")],
)
def test_event_time_is_an_integer_that_is_always_there(columns: str, message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        Dataflow("f").stream("s", columns, batches=by_interval("t", 10))


def test_the_key_of_an_outlet_is_one_of_its_columns_and_always_there() -> None:
    flow = Dataflow("f")
    with pytest.raises(DefinitionError, match="its key a may be NULL"):
        flow.outlet("o", "a TEXT", key="a")
    with pytest.raises(DefinitionError, match="has no column b"):
        flow.outlet("o", "a TEXT", key=["b"])
    assert flow.outlet("o", "a TEXT NOT NULL, b TEXT", key="a").key == ("a",)


def alone(tx: Transaction) -> None:
    """Do nothing."""


def other(tx: Transaction, m: int) -> None:
    """Do nothing."""


def refused(declare: Callable[[Dataflow], object], message: str) -> None:
    flow = dataflow()
    with pytest.raises(DefinitionError, match=message):
        declare(flow)


@pytest.mark.parametrize(
    ("declare", "message"),
    [
        (lambda f: f.stream("s", "n INTEGER", batches="by_count"), "s is cut by 'by_count', which"),
        (lambda f: f.window("w", "n INTEGER", 100), "w holds 100, which is no LastTuples or"),
        (lambda f: f.aggregate("a", "w", n="count(*)"), "a is over 'w', which is no Window"),
        (lambda f: f.procedure(takes="orders")(body), "body takes 'orders', which is no Stream"),
        (lambda f: f.procedure(takes=f.tables["shop_kept"])(body), "takes Table.* is no Stream"),
        (lambda f: f.procedure(takes=f.streams["orders"], reads="t")(body), "reads 't', which"),
        (lambda f: f.procedure(takes=f.streams["orders"], writes=["t"])(body), "writes 't', which"),
        (lambda f: f.procedure(takes=f.streams["orders"], gives=body)(body), "gives <function"),
        (lambda f: f.procedure(takes=f.streams["orders"], was=body)(body), "was <function"),
        (lambda f: f.trigger(on="orders")(body), "is on 'orders', which is no Stream or Window"),
        (lambda f: f.call(reads=f.outlets["sold"])(alone), "reads Outlet.* no Table"),
        (lambda f: f.migration("shop_kept", was="n INTEGER"), "fills 'shop_kept', which is no"),
        (lambda f: f.nest("price"), "nests 'price', which is none"),
        (lambda f: f.table(5, "n INTEGER"), "5 is not a name"),
        (lambda _: by_punctuation(timeout_s=1, on_timeout="close"), "on_timeout is 'close'"),  # type: ignore[arg-type]
        (lambda _: by_count(5, linger_s="1"), "linger_s is '1'"),  # type: ignore[arg-type]
    ],
)
def test_what_is_declared_is_of_the_kind_it_is_named_for(
    declare: Callable[[Dataflow], object], message: str
) -> None:
    refused(declare, message)


def test_one_thing_or_several_may_be_named() -> None:
    flow = dataflow()
    orders, kept, sold = flow.streams["orders"], flow.tables["shop_kept"], flow.outlets["sold"]
    flow.procedure(takes=orders, reads=kept, writes=kept, gives=sold)(body)
    declared = flow.procedures["body"]
    assert (declared.takes, declared.reads, declared.gives) == ((orders,), (kept,), (sold,))


@pytest.mark.parametrize(
    ("declare", "message"),
    [
        (lambda f: f.procedure(takes=f.streams["orders"])(alone), r"\(tx, orders\): too"),
        (lambda f: f.procedure(takes=[*f.streams.values()] * 2)(body), r"\(tx, orders, orders\)"),
        (lambda f: f.trigger(on=f.streams["orders"])(alone), r"\(tx, batch\): too"),
        (lambda f: f.call(arguments="n INTEGER")(other), r"\(tx, n=...\): missing"),
        (lambda f: f.call(arguments="tx INTEGER")(alone), "multiple values"),
        (lambda f: f.migration(f.tables["shop_kept"], was="n TEXT")(body), r"\(tx\): missing"),
    ],
)
def test_a_body_can_be_called_as_it_will_be(
    declare: Callable[[Dataflow], object], message: str
) -> None:
    refused(declare, f"cannot be called as .*{message}")


@pytest.mark.parametrize("name", ["order", "table", "select"])
def test_a_table_has_a_name_that_sql_needs_no_quotes_for(name: str) -> None:
    with pytest.raises(DefinitionError, match=f"'{name}' is a word of SQL"):
        Dataflow("f").table(name, "n INTEGER")


def load(tmp_path: Path, text: str) -> dict[str, Dataflow]:
    path = tmp_path / "flow.py"
    path.write_text(text)
    return loader.load([path])


def test_the_example_loads() -> None:
    assert list(loader.load([EXAMPLE])) == ["leaderboard"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1", "defines no dataflow"),
        ("import nothing_there", r"flow\.py:1: ModuleNotFoundError"),
        ("x = 1\ny = 1 / 0", r"flow\.py:2: ZeroDivisionError"),
        ("def broken(", r"flow\.py.*SyntaxError"),
        ("from etl_procs import Dataflow\nf = Dataflow('F')", r"flow\.py:2: dataflow: 'F' is not"),
        ("from etl_procs import Dataflow\nf = Dataflow('f')", "dataflow f has no procedure"),
    ],
)
def test_a_bad_file_is_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        load(tmp_path, text)


def test_an_absent_file_and_no_file_are_said(tmp_path: Path) -> None:
    with pytest.raises(DefinitionError, match="is not a Python file that is there"):
        loader.load([tmp_path / "absent.py"])
    with pytest.raises(DefinitionError, match="no dataflow is configured"):
        loader.load([])


def test_two_files_may_not_share_a_dataflow_or_a_table(tmp_path: Path) -> None:
    text = EXAMPLE.read_text()
    (tmp_path / "a.py").write_text(text)
    (tmp_path / "b.py").write_text(text)
    with pytest.raises(DefinitionError, match="dataflow leaderboard is defined twice"):
        loader.load([tmp_path / "a.py", tmp_path / "b.py"])
    (tmp_path / "b.py").write_text(text.replace('"leaderboard"', '"other"'))
    with pytest.raises(DefinitionError, match="table contestants is declared by leaderboard"):
        loader.load([tmp_path / "a.py", tmp_path / "b.py"])


def declared(wire: Any = DEFAULT_WIRE, **more: Any) -> object:
    return Dataflow("f").stream("s", "n INTEGER NOT NULL", wire=wire, **more)


def record(type_: object, name: str = "n") -> str:
    fields = [{"name": name, "type": type_}]
    return json.dumps({"type": "record", "name": "r", "fields": fields})


WIRES: dict[str, Callable[[], object]] = {
    "the separator is ''": lambda: delimited(""),
    "the quote is 'é'": lambda: delimited(";", quote="é"),
    "quote ';' cannot be told": lambda: delimited(";", quote=";"),
    r"the widths are \(0,\)": lambda: fixed_width(0),
    "null is 3": lambda: delimited(";", null=3),  # type: ignore[arg-type]
    "null is 'a;b'": lambda: delimited(";", null="a;b"),
    "xml: 3 is no path": lambda: xml(3),  # type: ignore[arg-type]
    "xml: 4 is no path": lambda: xml("r", n=4),  # type: ignore[arg-type]
    "format is 'csv'": lambda: declared(Wire("csv")),  # type: ignore[arg-type]
    "unknown is None": lambda: declared(Wire(unknown=None)),  # type: ignore[arg-type]
    "time is 3": lambda: declared(Wire(time=3)),  # type: ignore[arg-type]
    "route is -1": lambda: declared(Wire(route=-1)),
    "route is 2": lambda: declared(Wire(route=2, partitions=2)),
    "route is True": lambda: declared(Wire(route=True)),
    "keeps unknown fields in n, which is no TEXT": lambda: declared(Wire(unknown="n")),
    "time of the header in m, which is no INTEGER": lambda: declared(Wire(time="m")),
    "is routed by m, which is no column": lambda: declared(Wire(route="m")),
    "has 1 columns, and 2 widths": lambda: declared(fixed_width(1, -1, 1)),
    "has paths for m, which are no columns": lambda: declared(xml("r", m="@m")),
    "clean is {}": lambda: declared(Wire(clean={})),  # type: ignore[arg-type]
    "partitions is '2'": lambda: declared(Wire(partitions="2")),  # type: ignore[arg-type]
    "partitions is 2.5": lambda: declared(Wire(partitions=2.5)),  # type: ignore[arg-type]
    "partitions is 0": lambda: declared(Wire(partitions=0)),
    "retention_h is '7d'": lambda: declared(Wire(retention_h="7d")),  # type: ignore[arg-type]
    "retention_h is -1": lambda: declared(Wire(retention_h=-1)),
    "the schema is none: JSONDecodeError": lambda: avro("{"),
    "the schema is none: UnknownType": lambda: avro(record("integer")),
    "not that of a record": lambda: avro('"long"'),
    r"avro: n\.r holds itself": lambda: avro(record(["null", "r"]).replace('"r"', '"n.r"', 1)),
    "avro: r holds itself": lambda: avro(
        record({"type": "array", "items": {"type": "map", "values": "r"}})
    ),
    "has no n in its Avro schema, and it is NOT NULL": lambda: declared(avro(record("long", "m"))),
    "has no n in its Avro": lambda: declared(avro(record("null"))),
    "n is null or string in the Avro schema, which is never INTEGER": lambda: declared(
        avro(record(["null", "string"]))
    ),
    "n is enum in": lambda: declared(avro(record({"type": "enum", "name": "n", "symbols": ["a"]}))),
    "has an order, and no rule": lambda: declared(order="n"),
    "has a wire, and no rule": lambda: declared(delimited(";")),
}


FIXED = {"type": "fixed", "name": "f"}
NOTHING = {"type": "record", "name": "e", "fields": [{"name": "f", "type": {**FIXED, "size": 0}}]}


@pytest.mark.parametrize(
    ("items", "is_refused"),
    [
        ("null", True),
        ({"type": "array", "items": "null"}, True),
        ({**FIXED, "size": 0}, True),
        (NOTHING, True),
        ({"type": "map", "values": {"type": "array", "items": NOTHING}}, True),
        (["null", "long"], False),
        ({**FIXED, "size": 1}, False),
        ({"type": "map", "values": NOTHING}, False),
    ],
)
def test_an_avro_array_of_what_takes_no_bytes_is_refused(items: object, is_refused: bool) -> None:
    schema = record([{"type": "array", "items": items}, "long"])
    if not is_refused:
        assert avro(schema)
        return
    with pytest.raises(DefinitionError, match="the items of an array take no bytes"):
        avro(schema)


@pytest.mark.parametrize("message", WIRES)
def test_a_wire_that_cannot_be_meant_is_refused(message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        WIRES[message]()


def test_a_schema_of_which_some_data_fit_is_taken() -> None:
    declared(avro(record(["null", "int", "string"])), batches=by_count(1))
    schema = record({"type": "long", "logicalType": "timestamp-millis"})
    declared(avro(schema), batches=by_count(1))
    fields = [
        {"name": "first", "type": {"type": "enum", "name": "of.Kind", "symbols": ["a"]}},
        {"name": "kind", "type": ["null", "of.Kind"]},
    ]
    schema = json.dumps({"type": "record", "name": "r", "fields": fields})
    Dataflow("f").stream(
        "s", "kind TEXT NOT NULL, absent TEXT", batches=by_count(1), wire=avro(schema)
    )


def test_a_column_that_the_wire_fills_needs_no_width() -> None:
    wire = Wire(fixed_width(3), time="at_ms", unknown="more")
    columns = "n INTEGER, more TEXT, at_ms INTEGER NOT NULL"
    Dataflow("f").stream("s", columns, batches=by_count(1), wire=wire)
