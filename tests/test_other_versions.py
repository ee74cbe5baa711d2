"""A data folder of another version of Headrace: it is brought over, or refused in plain words."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from importlib.resources import files
from pathlib import Path

import pytest
from trial import Trial, dump

from etl_procs import Dataflow
from etl_procs.core import core_path
from etl_procs.errors import DefinitionChanged
from etl_procs.reader import Reader
from headrace.errors import Exit, Refused
from tpcdi.flow import flow as tpcdi

NOW = files("etl_procs").joinpath("schema.sql").read_text(encoding="utf-8")

FINISHED = "    finished    INTEGER NOT NULL CHECK (finished IN (0, 1)),\n"
OLDER = {
    "positions that know nothing of finished partitions": (
        [(FINISHED, "")],
        "headrace_positions has no finished",
    ),
    "sources in a window of bits": (
        [
            ("    bounds    BLOB NOT NULL,\n", "    high      INTEGER NOT NULL,\n"),
            ("    told_from INTEGER NOT NULL,\n", "    bits      BLOB NOT NULL,\n"),
        ],
        "headrace_sources has no bounds, told_from and has high, bits",
    ),
    "a core without a fence": (
        [
            ("    fence     INTEGER NOT NULL,\n    holder    TEXT NOT NULL,\n", ""),
            (
                "    kind       TEXT NOT NULL CHECK (kind IN ('table', 'window', 'aggregate')),\n",
                "",
            ),
        ],
        "headrace_core has no fence, holder; headrace_tables has no kind",
    ),
    "a version to come": (
        [("    holder    TEXT NOT NULL,\n", "    holder    TEXT NOT NULL,\n    mood TEXT,\n")],
        "headrace_core has mood",
    ),
}
"""How the core's own tables were, and what is said of them."""

WAS = {
    "closed_trades": (
        "tradeid INTEGER PRIMARY KEY, sk_customerid INTEGER NOT NULL, "
        "sk_accountid INTEGER NOT NULL, sk_securityid INTEGER NOT NULL, "
        "sk_companyid INTEGER NOT NULL, tradeprice TEXT, "
        "sk_closedateid INTEGER NOT NULL, sk_closetimeid INTEGER NOT NULL",
        "new: batchid, sk_brokerid, sk_createdateid, sk_createtimeid",
    ),
    "earnings": (
        "companyid INTEGER NOT NULL, quarter INTEGER NOT NULL, cents INTEGER NOT NULL, "
        "PRIMARY KEY (companyid, quarter)",
        "new: written",
    ),
    "waiting_events": (
        "th_t_id INTEGER NOT NULL, th_dts TEXT NOT NULL, th_st_id TEXT NOT NULL, "
        "UNIQUE (th_t_id, th_st_id)",
        "the same, with other constraints",
    ),
    "phases": (
        "batch INTEGER PRIMARY KEY, day INTEGER NOT NULL, is_open INTEGER NOT NULL",
        "the same, with other constraints",
    ),
}
"""How tables of TPC-DI were declared, and what of them differs."""

Old = Callable[[list[tuple[str, str]]], Path]


def items() -> Dataflow:
    flow = Dataflow("f")
    flow.table("items", "id INTEGER PRIMARY KEY")
    return flow


@pytest.fixture
def old(tmp_path: Path) -> Old:
    """Makes a core with its own tables as they were."""

    def make(changes: list[tuple[str, str]]) -> Path:
        schema, path = NOW, core_path(tmp_path)
        for now, then in changes:
            assert now in schema, now
            schema = schema.replace(now, then, 1)
        path.parent.mkdir()
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.executescript(f"PRAGMA journal_mode = WAL; {schema}")
            columns = connection.execute("PRAGMA table_info(headrace_core)").fetchall()
            ones = ", ".join("1" for _ in columns)
            connection.execute(f"INSERT INTO headrace_core VALUES ({ones})")
        return path

    return make


@pytest.mark.parametrize("what", OLDER)
def test_a_core_of_another_version_is_refused_with_what_differs_and_stays_as_it_is(
    old: Old, what: str
) -> None:
    changes, said = OLDER[what]
    path = old(changes)
    before = dump(path)
    with pytest.raises(Refused) as caught:
        Trial(path, items())
    assert caught.value.what == f"another version of Headrace has made this core: {said}"
    assert "--home DIR" in caught.value.hint
    assert "headrace reset" in caught.value.hint
    assert caught.value.exit == Exit.REFUSED
    assert dump(path) == before


def test_who_reads_a_core_of_another_version_is_told(old: Old) -> None:
    reader = Reader(old([(FINISHED, "")]))
    with pytest.raises(Refused, match=r"another version.*headrace_positions has no finished"):
        reader.check()
    with (
        pytest.raises(Refused, match="another version"),
        reader.snapshot() as snapshot,
    ):
        snapshot.connection.execute("SELECT finished FROM headrace_positions")


def test_columns_that_come_by_themselves_come_to_an_older_core(old: Old) -> None:
    path = old(
        [
            ("    holder    TEXT NOT NULL,\n    published INTEGER NOT NULL\n", "    holder TEXT\n"),
            (",\n    recent   TEXT NOT NULL DEFAULT ''\n", "\n"),
        ]
    )
    Reader(path).check()
    Trial(path, items()).close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("SELECT published, recent FROM headrace_core, headrace_epochs")


@pytest.fixture
def kept(tmp_path: Path) -> Callable[[str, str], Path]:
    """Makes a core in which a table of TPC-DI is declared as it was."""

    def make(table: str, columns: str) -> Path:
        flow = Dataflow(tpcdi.name)
        flow.table(table, columns)
        path = core_path(tmp_path)
        Trial(path, flow).close()
        return path

    return make


@pytest.mark.parametrize("table", WAS)
def test_a_core_that_holds_a_table_of_tpc_di_as_it_was_is_refused_and_told_which_columns(
    kept: Callable[[str, str], Path], table: str
) -> None:
    columns, said = WAS[table]
    path = kept(table, columns)
    before = dump(path)
    with pytest.raises(DefinitionChanged) as caught:
        Trial(path, tpcdi)
    assert caught.value.what.startswith(
        f"table {table} is declared with other columns than the core holds: {said}. "
    )
    assert "begin anew in another data folder" in caught.value.hint
    assert dump(path) == before


def test_a_core_that_holds_the_tables_of_tpc_di_as_they_are_is_opened(tmp_path: Path) -> None:
    for _ in range(2):
        Trial(core_path(tmp_path), tpcdi).close()
