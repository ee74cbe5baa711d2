"""Partitions: processes of their own that share a log, a warehouse, and nothing else."""

import os
import re
import resource
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from socket import socketpair
from typing import Any

import bank
import pytest
from bank import PARTITIONS, arrived, flow, names_of
from flows import offsets
from shop import HERE, Answering
from waiting import until

from api.catalogue import Catalogue
from api.cut import Freshness
from api.island import Setting
from etl_procs import (
    Dataflow,
    Transaction,
    by_count,
    by_punctuation,
    letters,
    loader,
    partitions,
    reader,
)
from etl_procs.batch import offset_of
from etl_procs.calls import Callers
from etl_procs.core import core_path, core_paths
from etl_procs.errors import DefinitionChanged
from etl_procs.flow import Committed
from etl_procs.letter import Sought
from etl_procs.origin import Origin
from etl_procs.partitions import Agreed, Open, Partitions, Start, Stop, Take, Topic, seen_by_all
from etl_procs.reader import Reader, Snapshot
from etl_procs.routing import routed
from etl_procs.rules import Rule
from etl_procs.store import Door
from headrace import config
from headrace.cli import main
from headrace.config import Config
from headrace.crash import CrashPoints
from headrace.errors import DefinitionError, Exit, HeadraceError
from headrace.local.home import Home
from migrations import layout, ledger, warehouse
from migrations.push import Push
from migrations.warehouse import DEFAULT, Warehouse

PATIENCE_S = 30.0
LEFT, RIGHT = names_of(0, 1)[0], names_of(1, 1)[0]


class Running:
    """The workers of the bank, as an engine has them."""

    def __init__(self, folder: Path, file: Path = bank.FILE, **core: Any) -> None:
        self.home = folder / "home"
        Home(self.home).run.mkdir(parents=True, exist_ok=True)
        self.config = Config(home=self.home, flows=(file,), core=config.Core(**core))
        self.committed: list[tuple[int, Committed]] = []
        self.failures: list[BaseException] = []
        self.partitions = Partitions(
            [Start(self.config, n, Home(self.home).metrics(n)) for n in range(PARTITIONS)],
            on_commit=lambda *what: self.committed.append(what),
            on_failure=self.failures.append,
        )
        self.said: list[str] = []
        self.positions: dict[tuple[str, str], dict[int, int]] = {}

    def start(self) -> None:
        self.said = self.partitions.start()
        self.positions = self.partitions.open({"bank": {"deposits": Topic("id", (0, 1))}})

    def take(self, rows: list[tuple[str | None, int]], **where: int) -> None:
        self.partitions.take(arrived(rows, **where), PARTITIONS)

    def until(self, condition: Callable[[], bool]) -> None:
        until(condition, PATIENCE_S, lambda: f"{self.committed} {self.failures}")

    def cents(self) -> dict[str, int]:
        """Give the accounts of each partition, at one point."""
        found: dict[str, int] = {}
        with reader.cut([*map(Reader, core_paths(self.home))]) as snapshots:
            for partition, snapshot in enumerate(snapshots):
                _, rows = snapshot.query("SELECT account, cents FROM accounts")
                mine: dict[str, int] = dict(rows)  # type: ignore[arg-type]
                assert mine.keys() <= set(names_of(partition, 5_000))
                found |= mine
        return found

    def seen(self) -> dict[int, int]:
        found = []
        for path in core_paths(self.home):
            with Reader(path).snapshot() as snapshot:
                found.append(offsets(snapshot.positions("bank", "deposits")))
        return seen_by_all(found)

    def pids(self) -> list[int]:
        return [process._process.pid for process in self.partitions._processes]


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    made = Running(tmp_path)
    made.start()
    yield made
    made.partitions.stop()


def test_each_tuple_is_run_where_its_key_is_and_all_positions_go_on(running: Running) -> None:
    rows: list[tuple[str | None, int]] = [(f"acc{n % 40}", n + 1) for n in range(400)]
    running.take(rows[:200])
    running.take(rows[200:], lane=1)
    running.until(lambda: running.seen() == {0: 200, 1: 200})
    expected: dict[str, int] = {}
    for account, cents in rows:
        assert account is not None
        expected[account] = expected.get(account, 0) + cents
    assert running.cents() == expected
    assert {partition for partition, _ in running.committed} == {0, 1}


def test_a_partition_without_a_tuple_of_its_own_stays_not_behind(running: Running) -> None:
    running.take([(name, 1) for name in names_of(0, 9)])
    running.until(lambda: running.seen() == {0: 9})
    assert {partition for partition, _ in running.committed} == {0}


def test_a_call_runs_where_its_key_is_and_its_repetition_too(running: Running) -> None:
    callers = Callers(running.home, {"bank": flow}, config.Core(), CrashPoints())
    for name in (LEFT, RIGHT):
        assert callers.call("bank", "put", {"account": name, "cents": 5}, key="k") == [{"cents": 5}]
        assert callers.call("bank", "put", {"account": name, "cents": 5}, key="k") == [{"cents": 5}]
    with pytest.raises(HeadraceError, match="account"):
        callers.call("bank", "put", {"cents": 5})
    callers.close()
    assert running.cents() == {LEFT: 5, RIGHT: 5}


def test_dead_letters_of_all_are_numbered_apart_and_found_by_number(running: Running) -> None:
    running.take([(LEFT, 0), (RIGHT, 0), (None, 1)])
    paths = core_paths(running.home)

    def dead() -> list[tuple[int, str]]:
        with letters.reading(paths) as found:
            return [(letter.id, letter.reason) for letter in found]

    running.until(lambda: len(dead()) == 3)
    reasons = dict(dead())
    numbers = sorted(reasons)
    assert numbers[:2] == [1, 2]
    assert numbers[2] == 1_000_000_001
    assert reasons[numbers[2]] == "nothing is no deposit"
    assert sorted(reasons.values()).count("not JSON") == 1
    with letters.reading(paths) as found:
        assert found.find(numbers[2]).fields == f'["{RIGHT}", 0]'
        (nothing,) = [t for t in found.tallies() if t.reason != "not JSON"]
        assert (nothing.letters, nothing.tuples) == (2, 2)
        assert sorted(found.chosen(Sought("bank"))) == numbers
    with letters.changing(paths, config.Core(), CrashPoints()) as changed:
        assert changed.drop([numbers[0], numbers[2]]) == [numbers[0], numbers[2]]
    assert [number for number, _ in dead()] == [numbers[1]]
    with (
        letters.reading(paths) as found,
        pytest.raises(HeadraceError, match="no dead letter 7000000000"),
    ):
        found.find(7_000_000_000)


@pytest.mark.parametrize("killed", [0, 1])
def test_a_killed_worker_ends_the_engine_and_the_next_goes_on(tmp_path: Path, killed: int) -> None:
    rows: list[tuple[str | None, int]] = [(f"acc{n % 40}", 1) for n in range(3_000)]
    first = Running(tmp_path, group_batches_max=2)
    first.start()
    feeding = threading.Thread(target=first.take, args=[rows])
    feeding.start()
    first.until(lambda: len(first.committed) > 3)
    os.kill(first.pids()[killed], signal.SIGKILL)
    first.until(lambda: bool(first.failures))
    assert "ended by itself, with code -9" in str(first.failures[0])
    feeding.join(PATIENCE_S)
    assert not feeding.is_alive()
    first.partitions.stop()
    again = Running(tmp_path)
    again.start()
    begin = offset_of(again.positions["bank", "deposits"].get(0, 0))
    assert begin < 3_000
    again.take(rows[begin:], first=begin)
    again.until(lambda: again.seen() == {0: 3_000})
    assert set(again.cents().values()) == {3_000 // 40}
    assert len(again.cents()) == 40
    again.partitions.stop()
    assert again.failures == []


def test_a_worker_that_ends_unasked_is_a_failure_whatever_its_code_is(tmp_path: Path) -> None:
    file, loop = tmp_path / "leaving.py", "    for row in batch.rows():"
    leaving = "    import os; os._exit(0)\n"
    file.write_text(bank.FILE.read_text().replace(loop, leaving + loop))
    made = Running(tmp_path, file)
    made.start()
    feeding = threading.Thread(target=made.take, args=[[(LEFT, 1)] * 3])
    feeding.start()
    made.until(lambda: bool(made.failures))
    assert "ended by itself, with code 0" in str(made.failures[0])
    feeding.join(PATIENCE_S)
    assert not feeding.is_alive()
    made.partitions.stop()


def test_what_workers_say_at_their_end_is_heard(tmp_path: Path) -> None:
    made = Running(tmp_path, group_batches_max=1)
    made.committed = Slowly()
    made.start()
    made.take([(LEFT, 1)] * 300)
    made.until(lambda: made.seen() == {0: 300})
    made.partitions.stop()
    assert made.failures == []
    assert sum(committed.tuples for _, committed in made.committed) == 300


class Slowly(list[tuple[int, Committed]]):
    """Takes its time with each."""

    def append(self, one: tuple[int, Committed]) -> None:
        time.sleep(0.02)
        super().append(one)


ENGINE = """\
import sys, time
from pathlib import Path
from test_partitions import Running
made = Running(Path(sys.argv[1]))
made.start()
print(*made.pids(), flush=True)
time.sleep(600)
"""


def is_running(pid: int) -> bool:
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False


def test_workers_end_when_their_engine_is_gone(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", ENGINE, str(tmp_path)],
        cwd=Path(__file__).parent,
        stdout=subprocess.PIPE,
    ) as engine:
        assert engine.stdout is not None
        pids = [int(pid) for pid in engine.stdout.readline().split()]
        assert len(pids) == PARTITIONS
        assert all(map(is_running, pids))
        engine.kill()
    until(lambda: not any(map(is_running, pids)), PATIENCE_S, lambda: str(pids))


@contextmanager
def alone(made: Running) -> Iterator[tuple[Connection, "subprocess.Popen[bytes]"]]:
    """Start a worker of its own, and give the engine's end of the socket."""
    ours, theirs = socketpair()
    command = [sys.executable, "-m", "etl_procs.worker", str(theirs.fileno())]
    with subprocess.Popen(command, pass_fds=[theirs.fileno()]) as worker:
        theirs.close()
        connection = Connection(ours.detach())
        connection.send(Start(made.config, 0, Home(made.home).metrics(0)))
        try:
            yield connection, worker
        finally:
            worker.kill()


def fence(home: Path) -> int:
    with Reader(core_path(home)).snapshot() as core:
        _, rows = core.query("SELECT fence FROM headrace_core")
        return int(next(rows)[0])  # type: ignore[arg-type]


def test_a_worker_whose_engine_is_gone_amid_the_start_takes_nothing_over(tmp_path: Path) -> None:
    made = Running(tmp_path)
    made.start()
    made.partitions.stop()
    before = fence(made.home)
    with closing(Door(core_path(made.home))) as door, alone(made) as (connection, worker):
        with door.writing():  # as an engine that was started meanwhile does
            time.sleep(3.0)
            connection.close()
            time.sleep(0.5)
        worker.wait(PATIENCE_S)
    assert fence(made.home) == before


def test_a_worker_that_was_told_to_stop_ends_when_its_engine_is_gone(tmp_path: Path) -> None:
    entered, file = tmp_path / "entered", tmp_path / "endless.py"
    endless = f"    open({str(entered)!r}, 'w')\n    import time; time.sleep(600)\n"
    loop = "    for row in batch.rows():"
    file.write_text(bank.FILE.read_text().replace(loop, endless + loop))
    made = Running(tmp_path, file)
    with alone(made) as (connection, worker):
        connection.recv()
        connection.send(Agreed())
        connection.send(Open({"bank": {"deposits": Topic("id", (0,))}}))
        connection.recv()
        (part, _) = routed(arrived([(LEFT, 1)] * 3), PARTITIONS)
        partitions.say(connection, Take("bank", "deposits", part.through, part.tuples))
        until(entered.exists, PATIENCE_S, str)
        connection.send(Stop())
        time.sleep(0.2)
        connection.close()
        worker.wait(PATIENCE_S)


def test_a_worker_that_cannot_hear_what_is_said_ends(tmp_path: Path) -> None:
    with alone(Running(tmp_path)) as (connection, worker):
        connection.recv()
        # As when it has no descriptor left for the memory in which the tuples are.
        connection.send(Take("bank", "deposits", {}, None))
        connection.send(Stop())
        assert worker.wait(PATIENCE_S) == Exit.FAILED


def test_tuples_for_which_there_is_no_memory_garble_no_other_message() -> None:
    (part, _) = routed(arrived([(LEFT, 1)] * 100), PARTITIONS)
    ours, theirs = (Connection(end.detach()) for end in socketpair())
    size, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with closing(ours), closing(theirs):
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
        try:
            with pytest.raises(OSError, match="File too large"):
                partitions.say(ours, Take("bank", "deposits", part.through, part.tuples))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
        partitions.say(ours, Stop())
        assert partitions.hear(theirs) == Stop()


@pytest.mark.parametrize(
    ("was", "now", "message"),
    [
        ("PARTITIONS = 2", "PARTITIONS = 3", "has 3 partitions now, .* divided among 2"),
        (
            '=0.05),\n    key="account"',
            '=0.05),\n    key="cents"',
            "by cents now, and was by account",
        ),
    ],
)
def test_other_partitions_or_keys_than_the_state_has_are_refused(
    tmp_path: Path, was: str, now: str, message: str
) -> None:
    first = Running(tmp_path)
    first.start()
    first.partitions.stop()
    file = tmp_path / "bank_otherwise.py"
    file.write_text(bank.FILE.read_text().replace(was, now))
    second = Running(tmp_path, file)
    with pytest.raises(DefinitionChanged, match=message):
        second.start()
    second.partitions.stop()


def test_a_core_from_before_there_were_partitions_is_not_divided(tmp_path: Path) -> None:
    first = Running(tmp_path)
    first.start()
    first.partitions.stop()
    core_path(first.home, 1).unlink()
    with closing(sqlite3.connect(core_path(first.home))) as connection:
        connection.execute("DROP TABLE headrace_dataflows")
    second = Running(tmp_path)
    with pytest.raises(DefinitionChanged, match=r"has 2 partitions now, .* divided among 1"):
        second.start()
    second.partitions.stop()


def test_what_one_partition_refuses_changes_none(tmp_path: Path) -> None:
    first = Running(tmp_path)
    first.start()
    first.take([(RIGHT, 1)] * 3)  # which waits for the warehouse in the second partition
    first.until(lambda: first.seen() == {0: 3})
    first.partitions.stop()
    file, columns = tmp_path / "noted.py", "cents INTEGER NOT NULL"
    text = bank.FILE.read_text()
    for before in (f'KEY, {columns}"', f'"statements", "account TEXT NOT NULL, {columns}"'):
        assert before in text
        text = text.replace(before, f'{before[:-1]}, note TEXT"')
    file.write_text(text)
    second = Running(tmp_path, file)
    with pytest.raises(DefinitionChanged, match=r"Bring the old definition back"):
        second.start()
    second.partitions.stop()
    third = Running(tmp_path)
    third.start()
    third.partitions.stop()
    assert third.said == []


def test_a_cut_over_partitions_sees_no_effect_without_its_cause(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between its first look and its last, a client puts something on the left, then the right."""
    callers = Callers(running.home, {"bank": flow}, config.Core(), CrashPoints())

    def put_both() -> None:
        for name in (LEFT, RIGHT):
            callers.call("bank", "put", {"account": name, "cents": 5})

    client = threading.Thread(target=put_both)
    opened = Reader.snapshot

    def snapshot(self: Reader) -> Any:
        first = threading.current_thread() is not client
        if first and self.path == core_path(running.home, 1):
            client.start()
            client.join(1.0)  # as long as it may take where nobody keeps it out
        return opened(self)

    with monkeypatch.context() as patched:
        patched.setattr(Reader, "snapshot", snapshot)
        assert running.cents() == {}
    client.join(PATIENCE_S)
    callers.close()
    assert running.cents() == {LEFT: 5, RIGHT: 5}


def test_a_reader_of_one_core_waits_for_nobody(tmp_path: Path) -> None:
    made = Running(tmp_path)
    made.start()
    made.partitions.stop()
    seen: list[Snapshot] = []
    cores = [*map(Reader, core_paths(made.home))]
    with reader.cut(cores[:1]) as one, reader.cut(cores) as both:
        seen += [*one, *both]
    assert len(seen) == 3


@pytest.mark.parametrize(
    ("declare", "message"),
    [
        (lambda f: f.stream("s", "a INTEGER NOT NULL", batches=by_count(1)), "stream s"),
        (lambda f: f.call(arguments="a INTEGER NOT NULL")(nothing), "call nothing"),
    ],
)
def test_what_does_not_say_its_partition_is_refused(
    declare: Callable[[Dataflow], object], message: str
) -> None:
    f = Dataflow("f", partitions=2)
    taken = f.stream("taken", "a INTEGER NOT NULL", batches=by_count(1), key="a")
    streams = [taken]
    if message.startswith("stream"):
        streams.append(declare(f))  # type: ignore[arg-type]
    else:
        declare(f)
    f.procedure(takes=streams)(take)
    with pytest.raises(DefinitionError, match=f"2 partitions, .* not on which: {message}"):
        f.check()


@pytest.mark.parametrize("rule", [by_count(1), by_punctuation(), by_count(1, linger_s=0.1)])
def test_partitions_that_would_wait_for_each_other_are_refused(rule: Rule) -> None:
    f = Dataflow("f", partitions=2)
    lingering = f.stream("lingering", "a TEXT NOT NULL", batches=by_count(1, linger_s=1), key="a")
    other = f.stream("other", "a TEXT NOT NULL", batches=rule, key="a")
    f.procedure(takes=[lingering, other])(take)
    if rule == by_count(1):
        with pytest.raises(DefinitionError, match="several streams, of which other may end no"):
            f.check()
    else:
        f.check()


def nothing(tx: Transaction, a: int) -> None: ...


def take(tx: Transaction, *batches: object) -> None: ...


@pytest.mark.parametrize("key", ["real", "nullable", "absent"])
def test_a_key_that_is_none_is_refused(key: str) -> None:
    f = Dataflow("f", partitions=2)
    columns = "real REAL NOT NULL, nullable INTEGER"
    with pytest.raises(DefinitionError, match=key):
        f.stream("s", columns, batches=by_count(1), key=key)


@pytest.mark.parametrize("partitions", [0, 65, "2"])
def test_a_number_of_partitions_that_cannot_be_is_refused(partitions: Any) -> None:
    with pytest.raises(DefinitionError, match=r"partitions"):
        Dataflow("f", partitions=partitions)


def test_a_table_of_a_dataflow_with_other_partitions_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "shared.py"
    file.write_text(
        bank.FILE.read_text()
        + "\n\nother = Dataflow('other')\n"
        + "@other.call(reads=[accounts])\ndef look(tx): ...\n"
    )
    with pytest.raises(DefinitionError, match=r"other\.look uses table accounts of dataflow bank"):
        loader.load([file])


def test_a_warehouse_has_each_partitions_rows_and_ledger_and_a_query_one_cut_of_all(
    running: Running, warehouse_url: str
) -> None:
    names = [*names_of(0, 5), *names_of(1, 5)]
    here, known = Warehouse(DEFAULT, warehouse_url), Catalogue.of({"bank": flow})
    island = Answering(Setting((here,), tuple(core_paths(running.home)), known))

    def answer(freshness: Freshness) -> tuple[dict[Any, Any], dict[str, int]]:
        found = island.query("SELECT account, cents FROM statements", freshness)
        assert len(found.rows) == len(dict(found.rows)), "each account once"
        return dict(found.rows), found.as_of

    with (
        warehouse.connect(warehouse_url, application="test") as connection,
        ExitStack() as opened,
    ):
        layout.prepare(connection, HERE, flow)
        pushes = []
        for partition, path in enumerate(core_paths(running.home)):
            origin = opened.enter_context(closing(Origin(path, config.Core(), CrashPoints())))
            origin.feed("bank", [HERE.name])
            pushes.append(Push(partition, HERE, origin, CrashPoints(), batches_max=1_000))
        running.take([(name, 1) for name in names])
        running.until(lambda: running.seen() == {0: 10})
        assert pushes[0].run(connection, flow).rows == 5
        assert answer(Freshness.DELTA)[0] == dict.fromkeys(names[:5], 1)
        rows, as_of = answer(Freshness.STAGED)
        assert rows == dict.fromkeys(names, 1)
        assert as_of.keys() == {"bank[0]", "bank[1]"}
        assert min(as_of.values()) > 0
        running.take([(name, 1) for name in names], first=10)
        running.until(lambda: running.seen() == {0: 20})
        assert answer(Freshness.STAGED)[0] == dict.fromkeys(names, 2)
        for push in pushes:
            push.run(connection, flow)
            assert not push.run(connection, flow).more
        assert answer(Freshness.DELTA)[0] == dict.fromkeys(names, 2)
        moved = ledger.read(connection, ["bank"])
        assert [moved["bank", partition].rows for partition in range(PARTITIONS)] == [10, 10]
        cores = {moved["bank", partition].core for partition in range(PARTITIONS)}
        assert len(cores) == PARTITIONS, "each has an id of its own"


def test_the_commands_show_all_partitions(
    running: Running, capsys: pytest.CaptureFixture[str]
) -> None:
    running.take([(LEFT, 1), (RIGHT, 2)])
    running.until(lambda: running.seen() == {0: 2})
    home = ["--home", str(running.home), "--flow", str(bank.FILE)]

    def said(*words: str) -> list[str]:
        assert main([*words, *home]) == Exit.OK
        return capsys.readouterr().out.splitlines()

    asked = "SELECT account, cents FROM accounts"
    assert said("core", asked, "--output", "csv") == [
        "partition,account,cents",
        f"0,{LEFT},1",
        f"1,{RIGHT},2",
    ]
    assert said("core", asked, "--output", "csv", "--partition", "1")[1:] == [f"{RIGHT},2"]
    assert main(["core", asked, "--partition", "2", *home]) == Exit.REFUSED
    said("call", "bank.put", f"account={RIGHT}", "cents=40")
    assert running.cents() == {LEFT: 1, RIGHT: 42}
    capsys.readouterr()
    main(["status", *home])
    shown = capsys.readouterr().out
    assert re.search(r"^bank\[0\] +1 ", shown, re.MULTILINE)
    assert re.search(r"^bank\[1\] +1 ", shown, re.MULTILINE)
    assert "core 0: no engine measures now" in shown, "it runs under no engine's lock"


def test_a_signal_to_all_processes_ends_the_workers_in_order(tmp_path: Path) -> None:
    """As a service manager ends all of a group at once: only the engine heeds it."""
    made = Running(tmp_path)
    made.start()
    for pid in made.pids():
        os.kill(pid, signal.SIGTERM)
    made.take([(LEFT, 1), (RIGHT, 1)])
    made.until(lambda: made.seen() == {0: 2})
    made.partitions.stop()
    assert made.failures == []
