"""The experiments: what they report, and that everybody in them ends in the same state."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from tpcdi_files import Directory

from api.catalogue import Catalogue
from api.resolve import resolve
from bench import __main__ as command
from bench import (
    analytics,
    migrate_changes,
    migrate_mains,
    migrate_merging,
    migrate_ours,
    migrate_peers,
    migrate_state,
    plot,
    postgres,
    tpcdi_elt,
    tpcdi_loading,
    tpcdi_ours,
    trades,
    trades_data,
    union,
    voter,
    voter_calls,
    voter_sql,
)
from bench.harness import DATA, Setup, Times, in_turns
from bench.ingest_latency import latencies_of, percentile
from bench.pace import Pace
from bench.usage import Usage, own_peak_mb
from bench.voter_bare import BareVoter
from bench.voter_postgres import PIPELINED, WAITING
from bench.voter_show import votes
from etl_procs import loader
from tpcdi import DERIVED, oracle

REPORT = {"name", "figures", "peers", "ratios", "spread", "settings", "machine"}
VOTES = 1_200
"""Enough for one removal."""


@pytest.fixture(autouse=True)
def in_an_own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def peer_postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with postgres.server(tmp_path_factory.mktemp("peer")) as conninfo:
        # The state is the same, and a test has not the time for its thousands of syncs.
        yield make_conninfo(conninfo, options="-c synchronous_commit=off")


def test_without_a_name_every_experiment_is_listed_with_a_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert command.main([]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(command.NAMES)
    assert all(len(line.split()) > 3 for line in lines)


LONG = ("ingest", "tpcdi", "analytics", "api", "migrate", "union")
"""What takes long, even quickly."""
EXPERIMENTS = [
    pytest.param(name, marks=[pytest.mark.slow] * (name in LONG)) for name in command.NAMES
]


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_an_experiment_reports_flat_figures_of_ours_and_of_peers(name: str, tmp_path: Path) -> None:
    report = json.loads(json.dumps(command.measure(name, quick=True, rounds=1, scale=0.02)))
    assert set(report) == REPORT
    assert report["name"] == name
    assert report["peers"]
    for figures in (report["figures"], report["ratios"], *report["peers"].values()):
        assert figures
        assert all(isinstance(value, float) for value in figures.values())
        # None is 0 but the harm of a kill, which may do none, and what a part that waits computes.
        may_be_0 = {*migrate_state.HARM, "rows_lost", "rows_doubled", "cpu_api_s"}
        assert all(value > 0 or key in may_be_0 for key, value in figures.items())
    assert set(report["spread"]) == set(report["ratios"])
    assert name not in ("union", "analytics") or analytics.TO_MERGED in report["ratios"]
    assert report["settings"]["quick"] is True
    assert report["machine"]["fsync_per_s"] > 0
    assert str(tmp_path) not in json.dumps(report)
    assert [path.name for path in (tmp_path / DATA).iterdir()] == [".gitignore"]
    assert name in command.table(report)


@pytest.mark.slow
def test_a_kill_at_any_point_of_a_push_or_a_merge_does_no_harm(
    tmp_path: Path, peer_postgres: str
) -> None:
    harmed = list(migrate_changes.batches(30, migrate_changes.BATCH))
    work = migrate_peers.Work("", postgres.url(peer_postgres), tmp_path, [], harmed)
    found = migrate_peers.ours_harmed(work, migrate_ours.POINTS)
    assert found["reads"] > 0
    assert all(found[key] == 0 for key in migrate_state.HARM)


def test_a_merge_that_leaves_other_rows_is_no_figure(peer_postgres: str, tmp_path: Path) -> None:
    migrate_mains.make(peer_postgres, 1_000)
    with migrate_mains.connected(peer_postgres, migrate_mains.BASE) as base:
        migrate_mains.fill_delta(base, 1_000, 100)
    merges = migrate_merging.Merges(peer_postgres)
    assert merges.ours(tmp_path) > 0
    assert merges.by_hand(tmp_path) > 0
    with migrate_mains.connected(peer_postgres, migrate_mains.BASE) as base:
        migrate_mains.fill_delta(base, 1_000, 200)
    with pytest.raises(AssertionError):
        merges.ours(tmp_path)


def test_the_elt_in_postgres_builds_the_warehouse_of_the_oracle(
    peer_postgres: str, small: Directory
) -> None:
    built = tpcdi_elt.build(peer_postgres, small.path)
    assert built.seconds > 0
    with (
        psycopg.connect(peer_postgres, autocommit=True) as warehouse,
        oracle.compute(small.path, batches=1) as computed,
    ):
        assert oracle.compare(warehouse, computed) == []
        warehouse.execute("UPDATE tpcdi.factwatches SET batchid = 2 WHERE watchid = 7")
        (other,) = oracle.compare(warehouse, computed)
    assert (other.table, other.missing, other.unexpected) == ("factwatches", 1, 1)


def test_the_stages_of_a_phase_are_what_its_loader_waited_for() -> None:
    phase = ("begin", "marks", "marks", "arrived", "arrived", "marks", "arrived")
    empty = [("arrived", 1.0)]
    moments = [(what, 2.0**at) for at, what in enumerate((*phase, *phase), start=1)]
    first, second = tpcdi_loading.stages([*empty, *moments, ("arrived", 1e9)])
    assert first == dict(
        zip(tpcdi_loading.STAGES, (4 - 2, 8 - 4, 16 - 8, 32 - 16, 128 - 32), strict=True)
    )
    assert second == {name: 128 * seconds for name, seconds in first.items()}


def test_a_part_has_used_what_its_ended_processes_have_used_meanwhile() -> None:
    work = "import time; [None for _ in iter(lambda: time.process_time() < 0.4, False)]"
    with Usage({"worker": os.getpid()}).watched() as usage:
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", work], check=True)
        ended = time.perf_counter()
    assert usage.cpu_s(began, ended)["worker"] >= 0.3
    assert usage.cpu_s(0, 0)["worker"] == 0
    assert usage.peaks_mb()["worker"] > 1


def test_what_a_program_was_forked_from_is_no_memory_of_its_own() -> None:
    held = bytearray(os.urandom(1)) * 400_000_000
    tells = "from bench.usage import own_peak_mb; print(own_peak_mb())"
    told = subprocess.check_output([sys.executable, "-c", tells], preexec_fn=bool)  # so it forks
    assert 5 < float(told) < 200 < own_peak_mb(), len(held)


def test_seconds_of_a_load_are_drawn_by_stage_source_and_part_the_longest_first() -> None:
    stages = {f"historical_{name}_s": float(at) for at, name in enumerate(tpcdi_loading.STAGES, 1)}
    ours = {"sent_trades_s": 1.0, "taken_trades_s": 2.5, "sent_cash_s": 0.5, "taken_cash_s": 3.5}
    report = {
        "figures": {"historical_s": 15.0, **stages, **ours, "cpu_spark_s": 9.0, "cpu_core_s": 10.0},
        "peers": {"postgres_elt": {"historical_s": 5.0, "step_date_s": 4.0, "cpu_client_s": 1.0}},
    }
    bars = [
        {name: seconds for name, (seconds, _) in of.items()} for of in plot.tpcdi(report).values()
    ]
    assert list(bars[0]) == list(reversed(tpcdi_loading.STAGES))
    assert [list(of.items()) for of in bars[1:]] == [
        [("cash", 4.0), ("trades", 3.5)],
        [("core", 10.0), ("spark", 9.0)],
        [("date", 4.0)],
        [("client", 1.0)],
    ]


def test_a_pace_counts_from_the_end_of_a_micro_batch_on() -> None:
    pace = Pace(100)
    for rows in (10, 30, 60):
        pace.read(rows)
    for rows in (10, 15, 15, 30, 30):
        pace.add(rows)
    (_, start), (_, end) = pace.marks[3], pace.marks[-1]
    assert pace.seconds() == pytest.approx((end - start) / 60 * 100)


def test_a_pace_tells_what_went_wrong() -> None:
    pace = Pace(1)
    pace.fail(ValueError("no broker"))
    with pytest.raises(ValueError, match="no broker"):
        pace.seconds()


def test_a_percentile_is_a_value_that_so_many_do_not_exceed() -> None:
    assert percentile([1.0, 2.0, 3.0, 4.0], 0.5) == 2.0
    assert percentile([1.0, 2.0, 3.0, 4.0], 0.99) == 4.0


def test_a_latency_is_counted_from_when_a_tuple_was_due() -> None:
    looks = {0: [(10.0, 0), (10.5, 1), (11.0, 2)], 1: [(10.0, 0), (11.0, 2)]}
    found = latencies_of(looks, began=10.0, rate=10, numbers=range(4))
    assert found == pytest.approx([500.0, 900.0, 800.0, 700.0])


@pytest.mark.parametrize(("durability", "group"), [("strong", 64), ("weak", 1)])
def test_the_bare_loop_ends_as_the_rules_say(tmp_path: Path, durability: str, group: int) -> None:
    made, show = votes(VOTES)
    bare = BareVoter(tmp_path / "bare.sqlite", durability, group)
    bare.run(made)
    assert bare.state() == show.state()
    assert bare.rejected == show.rejected
    bare.close()


@pytest.mark.parametrize("voter_type", [*WAITING, *PIPELINED], ids=lambda kind: kind.name)
def test_postgres_ends_as_the_rules_say(peer_postgres: str, voter_type: type) -> None:
    made, show = votes(VOTES)
    peer = voter_type(peer_postgres)
    peer.run(made)
    assert peer.state() == show.state()
    peer.close()


@pytest.mark.parametrize("name", ["strong", "weak", "client_driven"])
def test_our_engine_ends_as_the_rules_say(tmp_path: Path, name: str) -> None:
    trials = voter.trials(voter.play(VOTES)) | voter.slow_trials(voter.play(VOTES), "")
    assert trials[name](tmp_path) > 0  # it compares every table


def test_a_trial_that_ends_in_another_state_is_no_figure(tmp_path: Path) -> None:
    played = voter.Play(voter.play(VOTES).votes, voter.play(VOTES - 1).show)
    with pytest.raises(AssertionError, match="ended with other rows in"):
        voter.trials(played)["bare"](tmp_path)


def test_the_votes_lead_to_every_kind_of_outcome() -> None:
    made, show = votes(VOTES)
    assert votes(VOTES // 2)[0] == made[: VOTES // 2]
    assert 0 < show.rejected < VOTES / 10
    assert len(show.counts) == 99
    boards = {row[0] for row in show.state()["leaders"]}
    assert boards == {"top", "bottom", "trending"}


def test_the_example_and_the_peers_have_the_same_tables() -> None:
    example = loader.load([voter.EXAMPLE])["voter"]
    ours, calls = example.tables, voter_calls.flow.tables
    for name, table in ours.items():
        assert table.columns == calls[name].columns
        assert table.rows == calls[name].rows
        by_hand = next(sql for sql in voter_sql.SCHEMA if sql.startswith(f"CREATE TABLE {name} "))
        assert by_hand == f"CREATE TABLE {name} ({table.columns.sql})"


@pytest.fixture(scope="module")
def some_trades(tmp_path_factory: pytest.TempPathFactory) -> trades_data.Trades:
    return trades_data.trades(tmp_path_factory.mktemp("trades"), trades.LEAST_SCALE)


@pytest.mark.parametrize("size", [1, 7])
@pytest.mark.parametrize("way", trades.WAYS)
def test_every_way_of_trades_ends_with_the_rows_of_the_oracle(
    way: str, size: int, some_trades: trades_data.Trades, peer_postgres: str, tmp_path: Path
) -> None:
    work = trades.work_of(some_trades, size, 20)
    assert trades.trials(work, peer_postgres)[way](tmp_path) > 0  # it compares every row
    first, *rest = some_trades.entered
    other = work._replace(trades=some_trades._replace(entered=[(*first[:-1], 2), *rest]))
    with pytest.raises(AssertionError, match="other trades than the oracle"):
        trades.trials(other, peer_postgres)[way](tmp_path / "again")


def test_trades_refer_to_versions_of_all_times_and_some_are_open(
    some_trades: trades_data.Trades,
) -> None:
    rows = some_trades.dimensions["accounts"]
    assert len({account for _, account, *_ in rows}) < len(rows)
    used = {row[14] for row in some_trades.entered}
    assert used - {max(sk for sk, account, *_ in rows if account == of) for _, of, *_ in rows}
    assert {row[4] is None for row in some_trades.entered} == {True, False}


def test_groups_of_bars_are_drawn_one_below_the_other_each_by_its_own_measure() -> None:
    ways = {"trades_per_s_at_1": 40.0, "trades_per_s_at_1000": 4_000.0}
    half = {key: rate / 2 for key, rate in ways.items()}
    groups = plot.trades({"figures": ways, "peers": {"client": half}})
    assert list(groups) == ["batches of 1", "batches of 1,000"]
    lines = plot.drawn("Trades a second", groups).splitlines()
    bars = [line.split('"') for line in lines if "<rect x" in line]
    assert [float(bar[5]) for bar in bars] == [430, 215, 430, 215]
    assert len({bar[3] for bar in bars}) == len(bars)
    assert [line.split(">")[1] for line in lines if "40.0<" in line or "2,000<" in line] == [
        "40.0</text",
        "2,000</text",
    ]


def test_a_historical_load_is_told_with_the_seconds_of_its_audit_too() -> None:
    stages = dict.fromkeys(tpcdi_loading.STAGES, 1.0)
    told = {
        "phases": [{"rows": 300, "seconds": 10.0}],
        "stages": [stages],
        "sent": {},
        "taken": {},
        "cpu_s": 1.0,
        "audit_s": 5.0,
        "peak_mb": 1.0,
    }
    figures = tpcdi_ours.Loaded(told, {}).figures()
    assert figures["historical_counted_rows_per_s"] == 30.0
    assert figures["historical_rows_per_s"] == 20.0


def test_a_picture_of_tpc_di_says_that_its_figures_are_derived(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("tpcdi", "trades", "analytics"):
        shutil.copy(command.RESULTS / f"{name}.json", tmp_path)
    monkeypatch.setattr(plot, "RESULTS", tmp_path)
    plot.main()
    drawn = [file.read_text() for file in tmp_path.glob("*.svg")]
    assert len(drawn) == 3
    assert all(DERIVED in text for text in drawn)


def test_turns_are_taken_forwards_and_backwards(tmp_path: Path) -> None:
    turns: list[str] = []

    def trial(name: str) -> float:
        turns.append(name)
        return float(len(turns))

    trials = {name: lambda _folder, name=name: trial(name) for name in ("ours", "peer")}
    times = in_turns(trials, Setup(tmp_path, rounds=3))
    assert turns == ["ours", "peer", "peer", "ours", "ours", "peer"]
    assert times.seconds == {"ours": [1.0, 4.0, 5.0], "peer": [2.0, 3.0, 6.0]}
    assert not list(tmp_path.iterdir())


def test_no_round_is_begun_when_time_is_over_but_the_first(tmp_path: Path) -> None:
    times = in_turns({"ours": lambda _folder: 1.0}, Setup(tmp_path, rounds=3, until=0.0))
    assert times.seconds == {"ours": [1.0]}


def test_a_ratio_compares_the_turns_of_one_round() -> None:
    times = Times({"ours": [1.0, 2.0, 4.0], "peer": [1.0, 2.0, 4.0]})
    each = times.per({"ours": 8, "peer": 4})
    assert each.ratios("ours", "peer") == [2.0, 2.0, 2.0]
    assert each.rate("peer") == 2.0
    assert each.us("ours") == 250_000
    assert each.fastest(["peer", "ours"]) == "ours"


def test_the_island_takes_all_analytic_queries() -> None:
    catalogue = Catalogue.of({"analytics": analytics.flow_of({})})
    assert len(analytics.QUERIES) == 20
    for sql in analytics.QUERIES.values():
        assert resolve(sql, catalogue).places


def test_the_plot_of_the_union_has_both_plans_for_each_share_of_the_largest_table() -> None:
    figures = {
        f"{shape}_of_{size}_at_{percent}_{plan}_ms": float(size)
        for size in (10, 20)
        for shape in union.SHAPES_LARGE
        for percent, plan in ((100, "ship"), (100, "split"), (0, "warehouse"))
    }
    settings = {"sizes": [10, 20], "shapes": dict(union.SHAPES)}
    groups = plot.union({"figures": figures, "settings": settings})
    for bars in groups.values():
        assert {ms for ms, _ in bars.values()} == {20.0}
        assert [name.split(" staged, ")[0] for name in bars] == ["100 %", "100 %", "0 %"]
    peers = {"duckdb_attached": {"cash_ms": 3.0}}
    (bars,) = plot.analytics({"figures": {"cash_ms": 2.0}, "peers": peers}).values()
    assert [ms for ms, _ in bars.values()] == [2.0, 3.0]
