"""Each part of a check is missed where it lacks: each batch, column, bound and value."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import pytest
from lacking import broken
from psycopg.sql import SQL
from spoiled_parts import ALLOWED, NOISE, NOISE_OF_VALIDATION, PARTS
from spoilings import SPOILINGS

from tpcdi import audit
from tpcdi.checks import PRELUDE
from tpcdi.snapshot import Connection

COUNTS_MESSAGES = "DImessages validation reports"
ALIKE = {"Prospect MarketingNameplate": 1}
"""Parts that cannot be missed: who inherited is of high value too, so without a tag it is wrong."""


@contextmanager
def changed(warehouse: Connection, statement: str) -> Iterator[None]:
    """Have a warehouse in which something is otherwise."""
    with warehouse.transaction(force_rollback=True):
        warehouse.execute("SET LOCAL search_path = tpcdi")
        assert warehouse.execute(statement.encode()).rowcount, statement
        yield


def is_ok(warehouse: Connection, name: str) -> bool:
    (verdict,) = audit.run(warehouse, [name])
    return verdict.ok


@pytest.mark.parametrize("name", sorted(PARTS))
def test_a_warehouse_that_is_spoiled_in_one_part_of_a_check_fails_it(
    audited_warehouse: Connection, name: str
) -> None:
    for statement in PARTS[name]:
        with changed(audited_warehouse, statement):
            assert not is_ok(audited_warehouse, name), statement


@pytest.mark.parametrize("name", sorted(ALLOWED))
def test_what_a_check_allows_is_ok(audited_warehouse: Connection, name: str) -> None:
    for statement in ALLOWED[name]:
        with changed(audited_warehouse, statement):
            assert is_ok(audited_warehouse, name), statement


@pytest.mark.parametrize("statement", [*NOISE, *NOISE_OF_VALIDATION])
def test_answers_and_messages_of_another_kind_change_no_verdict(
    audited_warehouse: Connection, statement: str
) -> None:
    with changed(audited_warehouse, statement):
        wrong = {verdict.name for verdict in audit.run(audited_warehouse) if not verdict.ok}
    assert wrong == ({COUNTS_MESSAGES} if statement in NOISE_OF_VALIDATION else set())


def test_every_part_is_of_a_check() -> None:
    assert PARTS.keys() | ALLOWED.keys() | ALIKE.keys() <= audit.CHECKS.keys()


@pytest.mark.slow
@pytest.mark.parametrize("name", audit.NAMES)
def test_a_check_that_lacks_a_part_is_noticed(audited_warehouse: Connection, name: str) -> None:
    composed = SQL(PRELUDE) + audit.CHECKS[name]
    lacking = dict(broken(composed.as_string(audited_warehouse)))
    noise = NOISE if name == COUNTS_MESSAGES else (*NOISE, *NOISE_OF_VALIDATION)
    told = [(statement, False) for statement in (SPOILINGS[name], *PARTS[name])]
    told += [(statement, True) for statement in (*ALLOWED[name], *noise)]
    ways = [("UPDATE audit SET value = value", True), *told]
    for statement, is_fine in ways:
        with changed(audited_warehouse, statement):
            passed = set(_passing(audited_warehouse, lacking))
        lacking = {what: sql for what, sql in lacking.items() if (what in passed) == is_fine}
    assert len(lacking) == ALIKE.get(name, 0), list(lacking)


def _passing(warehouse: Connection, lacking: dict[str, str]) -> Iterable[str]:
    """Tell which broken builds of a check would find a warehouse to be OK."""
    for what, sql in lacking.items():
        rows = warehouse.execute(sql.encode()).fetchall()
        if rows and all(
            found is not None and wanted is not None and audit.RELATIONS[relation](found, wanted)
            for _, found, relation, wanted in rows
        ):
            yield what
