"""What the rules say of special rows, made by hand: TPC-DI's dataflow does it."""

from datetime import date
from pathlib import Path
from typing import Any

import phased
from digen import Digen

from etl_procs import Trial
from tpcdi import oracle
from tpcdi.flow import flow
from tpcdi.oracle.comparison import differences


def files() -> Digen:
    """Begin a directory, with a calendar."""
    made = Digen()
    made.days(date(1950, 1, 1), date(1950, 1, 1))
    made.days(date(2015, 1, 1), date(2017, 12, 31))
    return made


def agrees(made: Digen, folder: Path, *seeds: int) -> None:
    """Load files in order, and interleaved: the oracle has the same rows."""
    made.write(folder)
    for seed in (None, *seeds):
        with Trial(flow) as trial, oracle.compute(folder) as computed:
            phased.load(trial, folder, seed=seed)
            phased.fetch(trial, computed, "warehouse")
            found = "\n".join(map(str, differences(computed, "warehouse")))
            assert found == "", f"seed {seed}: {found}"
            assert trial.dead_letters() == []


def rows(trial: Trial, table: str, *names: str) -> list[tuple[Any, ...]]:
    """Give what an outlet was given, of some columns."""
    return [tuple(row[name] for name in names) for row in trial.outlet(table)]


def test_records_of_a_company_that_differ_are_two_versions_even_if_their_rows_are_the_same(
    tmp_path: Path,
) -> None:
    made = files()
    made.row(1, "Industry.txt", "SM", "Steel", "BM")
    made.company("20150101-090000", "ACME", 1, rating="ABC")
    made.company("20160101-090000", "ACME", 1, rating="EE")
    made.company("20160201-090000", "ACME", 1, rating="EE", industry="SM")
    made.company("20160301-090000", "ACME", 1, rating="EE", industry="SM")
    agrees(made, tmp_path, 1)


def test_without_a_calendar_brokers_are_some_since_the_benchmarks_first_day(tmp_path: Path) -> None:
    with Trial(flow) as trial:
        phased.load(trial, Digen().write(tmp_path))
        assert [day for (day,) in rows(trial, "dimbroker", "effectivedate")] == [date(1950, 1, 1)]
