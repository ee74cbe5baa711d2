"""The load of a directory: what it sends and says; and that it ends well whatever is killed."""

from pathlib import Path

import audited
import pytest
from loading import REFERS, Reader, load_and_kill

from tpcdi import oracle
from tpcdi.generate import generate

SEED = 7


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tpcdi") / "files"
    generate(path, 0.01, SEED)
    return path


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 7))
def test_whatever_is_killed_in_each_phase_the_audit_passes_and_no_fact_is_seen_without_dimensions(
    tmp_path: Path, folder: Path, seed: int
) -> None:
    load_and_kill(tmp_path, folder, seed)


@pytest.mark.slow
def test_many_kills_in_each_phase_change_nothing(tmp_path: Path, folder: Path) -> None:
    load_and_kill(tmp_path, folder, 8, kills=4)


def test_the_reader_sees_what_refers_to_something_that_is_not_there(
    postgres_url: str, tmp_path: Path
) -> None:
    directory = audited.files().write(tmp_path)
    wanted = {f"{table}.{column}" for table, columns in REFERS.items() for column in columns}
    with audited.database(postgres_url, "orphans") as warehouse:
        with oracle.compute(directory) as computed:
            audited.fill(warehouse, computed)
        reader = Reader()
        reader.read(warehouse)
        assert reader.found == set()
        for table in ("broker", "company", "security", "customer", "account", "date", "trade"):
            with warehouse.transaction(force_rollback=True):
                warehouse.execute(f"DELETE FROM tpcdi.dim{table}".encode())
                reader.read(warehouse)
        assert reader.found == wanted
