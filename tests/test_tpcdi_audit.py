"""The audit passes a warehouse that is right, and each check can fail."""

from collections.abc import Callable
from pathlib import Path

import audited
import pytest
from spoilings import SPOILINGS

from migrations import warehouse as warehouses
from migrations.errors import Away
from tpcdi import audit, oracle
from tpcdi.snapshot import Connection, snapshot


@pytest.fixture
def warehouse(audited_warehouse: Connection) -> Connection:
    return audited_warehouse


def test_a_warehouse_that_is_right_passes_every_check(warehouse: Connection) -> None:
    assert [verdict for verdict in audit.run(warehouse) if not verdict.ok] == []


def test_a_server_that_goes_away_while_it_is_read_is_away_and_no_bug(postgres_url: str) -> None:
    reader = warehouses.connect(postgres_url, application="reader")
    with pytest.raises(Away, match="reading the warehouse"), snapshot(reader):
        reader.execute("SELECT pg_terminate_backend(pg_backend_pid())")


def test_the_audit_has_the_129_checks_of_tpc_di() -> None:
    assert len({name.partition(":")[0] for name in audit.CHECKS}) == 129


def test_every_check_has_a_spoiling() -> None:
    assert SPOILINGS.keys() == audit.CHECKS.keys()


@pytest.mark.parametrize("name", sorted(SPOILINGS))
def test_a_warehouse_that_is_spoiled_in_one_respect_fails_the_check(
    warehouse: Connection, name: str
) -> None:
    with warehouse.transaction(force_rollback=True):
        warehouse.execute("SET LOCAL search_path = tpcdi")
        assert warehouse.execute(SPOILINGS[name].encode()).rowcount
        (verdict,) = audit.run(warehouse, [name])
    assert not verdict.ok
    assert verdict.name == name


def test_a_check_without_anything_to_look_at_fails(warehouse: Connection) -> None:
    with warehouse.transaction(force_rollback=True):
        warehouse.execute("DELETE FROM tpcdi.dimessages")
        (verdict,) = audit.run(warehouse, ["DImessages validation reports"])
    assert verdict.wrong == "there is nothing to check"


def test_a_verdict_tells_what_was_found_and_what_is_wanted(warehouse: Connection) -> None:
    with warehouse.transaction(force_rollback=True):
        warehouse.execute("DELETE FROM tpcdi.audit WHERE batchid = 2")
        warehouse.execute("DELETE FROM tpcdi.dimbroker")
        found = audit.run(warehouse, ["DimBroker row count", "FactHoldings row count"])
    assert [verdict.wrong for verdict in found] == [
        "0 where = 1 is wanted",
        "batch 2: 1, and the files do not say what is wanted",
    ]


def test_what_the_oracle_makes_of_generated_files_is_what_the_generator_answers(
    postgres_url: str, made: Callable[[float, int], Path]
) -> None:
    directory = made(0.01, 7)
    with audited.database(postgres_url, "generated") as connection:
        with oracle.compute(directory) as computed:
            audited.fill(connection, computed)
        audited.report(connection, directory)
        wrong = {verdict.name for verdict in audit.run(connection) if not verdict.ok}
    # More than 300 rates need as many customers.
    assert wrong <= {"DimCustomer LocalTaxRate"}
