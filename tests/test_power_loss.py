"""Weak durability: a power loss cuts the end of the log off, and with it nothing but time.

SQLite's log of a core that was not closed is cut at many places, as a disk would leave it that had
not yet written the rest; a core is opened on what is left, and reads Kafka again from its own
positions. In the end it holds what it would hold without the loss.
"""

import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from trial import Trial, named, pass_on

from etl_procs import (
    Batch,
    Dataflow,
    Transaction,
    by_count,
    by_interval,
    by_punctuation,
    last_interval,
    last_tuples,
)
from etl_procs.rules import Rule

ROWS = "t INTEGER NOT NULL, k TEXT NOT NULL"
CUTS = 40


def declared(rule: Rule) -> Dataflow:
    """Declare a dataflow that has some of everything that is kept."""
    flow = Dataflow("power")
    source = flow.stream("source", ROWS, batches=rule)
    inner = flow.stream("inner", ROWS)
    totals = flow.table("totals", "k TEXT PRIMARY KEY, n INTEGER NOT NULL, batch INTEGER NOT NULL")
    recent = flow.window("recent", ROWS, last_tuples(7, slide=2))
    timely = flow.window("timely", ROWS, last_interval("t", 20, slide=5))
    flow.aggregate("by_key", recent, by="k", n="count(*)")
    out = flow.outlet("out", "k TEXT NOT NULL, n INTEGER", key="k")

    @flow.procedure(takes=source, gives=[inner, recent])
    def begin(tx: Transaction, batch: Batch) -> None:
        good = []
        for row in batch.rows():
            if row["k"] == "bad":
                tx.reject(row, "a bad key")
            else:
                good.append(row)
        tx.emit(recent, good)
        if len(good) == 5:
            tx.abort("five are too many")
        tx.emit(inner, good)

    @flow.procedure(takes=inner, writes=[totals], gives=[out, timely])
    def count(tx: Transaction, batch: Batch) -> None:
        tx.emit(timely, batch.table)
        for row in batch.rows():
            tx.execute(
                "INSERT INTO totals VALUES (:k, 1, :batch) "
                "ON CONFLICT DO UPDATE SET n = n + 1, batch = :batch",
                {"k": row["k"], "batch": tx.batch},
            )
            tx.emit(out, tx.query("SELECT k, n FROM totals WHERE k = :k", {"k": row["k"]}))
        if tx.batch % 5 == 0:
            tx.delete(out, [{"k": "a"}])

    flow.procedure(takes=inner)(named("aside", lambda _tx, _batch: None))
    return flow


RULES: dict[str, Rule] = {
    "count": by_count(4),
    "interval": by_interval("t", 6),
    "punctuation": by_punctuation(),
}


class Powered(Trial):
    """A core with weak durability, whose log is left to grow; and its copies."""

    def __init__(self, path: Path, rule: str) -> None:
        self.rule = rule
        super().__init__(
            path, declared(RULES[rule]), durability="weak", group_batches_max=2, attempts_max=1
        )

    def read(self, chance: random.Random) -> None:
        """Let a log of tuples arrive, in pieces, and run each."""
        (source,) = self.flows[0].borders
        time = 0
        for _ in range(25):
            rows = []
            for _ in range(chance.randint(0, 6)):
                time += chance.randint(0, 3)
                rows.append((max(time - chance.choice([0, 0, 4]), 0), chance.choice("abcd")))
            if chance.random() < 0.2:
                rows.append((time, "bad"))
            if self.rule == "punctuation":
                self.end(source, rows)
            else:
                self.feed(source, rows)
            self.clock.step = chance.choice([0.0, 0.0, 1.0])
            self.core.drain()
            self.clock.step = 0.0

    def copied(self, path: Path) -> None:
        """Copy the core as it lies on the disk now, the log beside it."""
        for suffix in ("", "-wal"):
            shutil.copy(f"{self.path}{suffix}", f"{path}{suffix}")

    def seen(self) -> dict[str, Any]:
        """Give all that is kept; letters by what they say and not by their numbers."""
        state = self.state()
        state["headrace_dead_letters"] = [
            (x.batch, x.unit, x.reason, x.offset, x.fields, x.rows()) for x in self.letters()
        ]
        return state


@pytest.fixture(scope="module", params=list(RULES))
def powered(request: pytest.FixtureRequest, tmp_path_factory: Any) -> Iterator[Powered]:
    trial = Powered(tmp_path_factory.mktemp("powered") / "core.db", request.param)
    trial.pragma("wal_autocheckpoint = 0")
    trial.read(random.Random(request.param))  # noqa: S311
    yield trial
    trial.close()


def again(powered: Powered, path: Path) -> Powered:
    """Open a core on a copy, and let it read all of the log, as far as it has not done it."""
    trial = Powered(path, powered.rule)
    trial.log = powered.log
    for part in powered.log:
        trial.core.feed(part)
    return trial


def test_what_is_left_after_a_power_loss_becomes_what_it_would_have_been(
    powered: Powered, tmp_path: Path
) -> None:
    undisturbed = powered.seen()
    assert len(undisturbed["headrace_dead_letters"]) > 3
    assert len(undisturbed["power > out"]) > 20
    powered.copied(tmp_path / "whole.db")
    log = (tmp_path / "whole.db-wal").read_bytes()
    chance = random.Random(7)  # noqa: S311
    batches = set()
    for number in range(CUTS):
        path = tmp_path / f"{number}.db"
        shutil.copy(tmp_path / "whole.db", path)
        cut = chance.randrange(len(log))
        (tmp_path / f"{number}.db-wal").write_bytes(log[:cut])
        trial = again(powered, path)
        batches.add(trial.batch(trial.flows[0]))
        _state_and_positions_belong_together(trial)
        trial.core.drain()
        assert trial.seen() == undisturbed, f"cut at {cut} of {len(log)}"
        trial.close()
    assert len(batches) > 5  # the cuts were at places that differ


def _state_and_positions_belong_together(trial: Powered) -> None:
    """Every tuple that the positions call consumed is in a table, a letter, or still pending."""
    (source,) = trial.flows[0].borders
    (consumed,) = trial.core.positions(source).values() or [0]
    places = [n for part in trial.log for n in part.tuples["_place"].to_pylist()]
    marks = [n for part in trial.log for n in part.tuples["_mark"].to_pylist()]
    tuples = sum(n < consumed and m is None for n, m in zip(places, marks, strict=True))
    (counted,) = trial.query("SELECT coalesce(sum(n), 0) FROM totals")[0]
    letters = sum(letter.row_count for letter in trial.letters())
    pending = trial.query("SELECT data FROM headrace_pending WHERE stream = 'inner'")
    assert counted + letters <= tuples
    if not pending:
        assert counted + letters == tuples


@pytest.mark.parametrize("damage", ["a byte that is wrong", "a hole"])
def test_a_log_that_is_damaged_in_the_middle_counts_only_up_to_there(
    powered: Powered, tmp_path: Path, damage: str
) -> None:
    undisturbed = powered.seen()
    powered.copied(tmp_path / "copy.db")
    file = tmp_path / "copy.db-wal"
    log = bytearray(file.read_bytes())
    middle = len(log) // 2
    if damage == "a hole":
        log[middle : middle + 8192] = bytes(8192)
    else:
        log[middle] ^= 0xFF
    file.write_bytes(log)
    trial = again(powered, tmp_path / "copy.db")
    assert trial.batch(trial.flows[0]) < powered.batch(powered.flows[0])
    trial.core.drain()
    assert trial.seen() == undisturbed
    trial.close()


def test_strong_is_on_the_disk_before_it_counts_and_weak_is_not(tmp_path: Path) -> None:
    for durability, level in (("strong", 2), ("weak", 1)):
        flow = Dataflow("f")
        source = flow.stream("s", "n INTEGER", batches=by_count(1))
        out = flow.outlet("o", "n INTEGER")
        flow.procedure(takes=source, gives=[out])(named("p", pass_on(out)))
        trial = Trial(tmp_path / f"{durability}.db", flow, durability=durability)
        assert trial.pragma("synchronous") == [(level,)]
        assert trial.pragma("journal_mode") == [("wal",)]
        trial.close()
