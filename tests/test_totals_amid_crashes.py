"""Totals that never change, asked at every freshness and by every plan while parts are killed."""

from pathlib import Path

from totals import asked_amid_kills


def test_whoever_is_killed_no_total_is_wrong_and_no_cut_goes_backwards(
    warehouse_url: str, tmp_path: Path
) -> None:
    print(asked_amid_kills(tmp_path, warehouse_url, rounds=1, seed=1))
