"""Broken builds: what happens to the promises when one line of the product is not there.

Each mutation is a textual change to a copy of the tree, and names the tests that must fail for it.
One that nothing catches makes `make prove` fail, and so does one that does not apply any more.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
COPIED = ("api", "etl_procs", "headrace", "migrations", "tests", "pyproject.toml")

MODEL = "test_reference.py"
CRASH = "test_core_crash.py"
HISTORY = "test_serializable.py"
RACES = "test_migration_races.py"
TOTALS = "test_totals_amid_crashes.py"
LEDGER = "test_guarantees.py::test_an_engine_whose_ledger_another_has_moved_changes_nothing"


@dataclass(frozen=True)
class Mutation:
    """One way to break the core, or another room."""

    what: str
    module: str
    old: str
    new: str
    tests: Sequence[str] = (MODEL,)
    room: str = "etl_procs"

    def within(self, tree: Path) -> Path:
        """Give the module in a copy of the tree."""
        return tree / self.room / self.module


MUTATIONS = [
    Mutation(
        "the ledger moves without comparing",
        "ledger.py",
        "SET batch = :batch WHERE dataflow = :dataflow AND batch = :was",
        "SET batch = :batch WHERE dataflow = :dataflow",
        (LEDGER,),
    ),
    Mutation("the fence is not looked at", "ledger.py", "if now != fence:", "if False:"),
    Mutation(
        "positions are committed before the effects",
        "group.py",
        "self._positions[stream.name].update(positions)",
        "ledger.move_positions(self._connection, self._name, {stream.name: positions}); "
        "self._connection.execute('COMMIT'); self._connection.execute('BEGIN IMMEDIATE')",
    ),
    Mutation(
        "the effects are committed before the ledger",
        "group.py",
        "        ledger.move_positions(connection, self._name, self._positions)\n",
        "        connection.execute('COMMIT'); connection.execute('BEGIN IMMEDIATE')\n"
        "        ledger.move_positions(connection, self._name, self._positions)\n",
        (CRASH,),
    ),
    Mutation(
        "members of a nested group are units of their own",
        "graph.py",
        "nested = {name: nest for nest in dataflow.nests for name in nest}",
        "nested: dict[str, tuple[str, ...]] = {}",
        (HISTORY,),
    ),
    Mutation(
        "units run in the reverse of the topological order",
        "graph.py",
        "for group in TopologicalSorter(before).static_order():",
        "for group in reversed(list(TopologicalSorter(before).static_order())):",
    ),
    Mutation(
        "a window by tuples slides one early",
        "windows.py",
        "while last - first + 1 >= self._slide:",
        "while last - first + 1 >= self._slide - 1:",
    ),
    Mutation(
        "a window by batches slides one early",
        "windows.py",
        "if batch % slide == 0:",
        "if (batch + 1) % slide == 0:",
    ),
    Mutation(
        "a late tuple does not enter a window by event time",
        "windows.py",
        "cursor.execute(self._enter, (oldest, end))\n",
        "cursor.execute(self._enter, (end - min(self._size, self._slide), end))\n",
        ("test_windows.py",),
    ),
    Mutation(
        "what a published stream holds is kept after the commit that makes it",
        "group.py",
        "        self.published_bytes = published.add(",
        "        connection.execute('COMMIT'); connection.execute('BEGIN IMMEDIATE')\n"
        "        self.published_bytes = published.add(",
        (CRASH,),
    ),
    Mutation(
        "a published stream is said to be kept from a round on that has begun",
        "published.py",
        "coalesce(max(batch), 0)",
        "coalesce(min(batch), 0)",
        ("test_published.py",),
    ),
    Mutation(
        "a batch of a published stream that is forgotten is said to be there",
        "published.py",
        "SET after = max(after, :through)",
        "SET after = max(after, :through - 1)",
        ("test_published.py",),
    ),
    Mutation(
        "what failed is not rolled back",
        "group.py",
        'connection.execute("ROLLBACK TO te")',
        "pass",
    ),
    Mutation(
        "what a failed unit has emitted goes on",
        "group.py",
        "self._give_up(unit, batch, inputs, failures)\n        return done",
        "self._give_up(unit, batch, inputs, failures)\n            return tried\n"
        "        return done",
    ),
    Mutation(
        "a batch that failed is no dead letter",
        "group.py",
        "            self._give_up(unit, batch, inputs, failures)\n",
        "            pass\n",
    ),
    Mutation(
        "a group whose attempt has failed without a savepoint is kept",
        "group.py",
        "            self._fail((unit.name, self._round), [done])\n",
        "            return None\n",
    ),
    Mutation(
        "the attempt that took a group down is not counted",
        "flow.py",
        "self.failures[key] = failures",
        "self.failures[key] = []",
        ("test_optimistic.py",),
    ),
    Mutation(
        "what does not decode is passed over",
        "group.py",
        "if undecoded is not None:",
        "if False:",
    ),
    Mutation(
        "a batch is gone when the first has taken it",
        "group.py",
        "            if self._is_awaited(stream, self.last)\n",
        "            if all(self.done[p] < self.last for p in self._plan.consumers[stream])\n",
    ),
    Mutation(
        "what a group left pending is not read again",
        "core.py",
        "held = {(batch.stream.name, batch.id): batch for batch in waiting}",
        "held = {(b.stream.name, b.id): b for b in waiting if not b}",
    ),
    Mutation(
        "a group may end amid a replay",
        "group.py",
        " and self._replay is None:\n                    return",
        ":\n                    return",
        (MODEL, "test_replay.py"),
    ),
    Mutation(
        "dead letters that run again stay",
        "dead_letters.py",
        '        self._connection.executemany(DROP, [{"id": letter.id} for letter in letters])\n',
        "",
    ),
    Mutation(
        "rows are staged under the next batch",
        "group.py",
        "kept.append((execution.batch, staged))",
        "kept.append((execution.batch + 1, staged))",
    ),
    Mutation(
        "a batch more is forgotten than was confirmed",
        "staging.py",
        "= :dataflow AND last_batch <= :through",
        "= :dataflow AND last_batch <= :through + 1",
    ),
    Mutation(
        "one outlet has one part of a batch",
        "schema.sql",
        "    data        BLOB NOT NULL\n) STRICT;\n\nCREATE INDEX IF NOT EXISTS headrace_stages",
        "    data        BLOB NOT NULL,\n    UNIQUE (dataflow, outlet, last_batch, first_batch)\n"
        ") STRICT;\n\nCREATE INDEX IF NOT EXISTS headrace_stages",
    ),
    Mutation(
        "the punctuation that was reached is not recorded",
        "group.py",
        "ledger.close_epoch(connection, self._name, rule, self._epoch, recent)",
        "pass",
    ),
    Mutation(
        "tuples that are repeated are taken again",
        "batch.py",
        "tuples = tuples.filter(pc.invert(done))",
        "pass",
    ),
    Mutation(
        "what a source sends again is taken again",
        "sources.py",
        "is_fresh[start : start + rows] = bytes(rows)",
        "pass",
        ("test_sources.py",),
    ),
    Mutation(
        "numbers between the ranges of a source count as seen",
        "sources.py",
        "if len(bounds) > 2 * RANGES_MAX:",
        "if len(bounds) > 2:",
        ("test_sources.py",),
    ),
    Mutation(
        "the ledger does not have that a partition is finished",
        "core.py",
        "passed, finished)",
        "passed)",
        ("test_sources.py",),
    ),
    Mutation(
        "a late tuple is lost by the intake",
        "backlog.py",
        "stretch_end - stretch_start)\n            ):\n",
        "stretch_end - stretch_start)\n            )[-1:]:\n",
        ("test_intake.py",),
    ),
    Mutation(
        "the key of a call is recorded after its commit",
        "calls.py",
        "connection.execute(KEEP, {**of, **texts})",
        "connection.execute('COMMIT'); connection.execute('BEGIN IMMEDIATE'); "
        "connection.execute(KEEP, {**of, **texts})",
    ),
    Mutation(
        "a call is not written down with its key",
        "calls.py",
        "kept = connection.execute(KEPT, of).fetchone() if key else None",
        "kept = None",
    ),
    Mutation(
        "a writer reads before it has the lock, and others do not wait for it",
        "store.py",
        "with self._door.writing(), translated():\n            try:\n"
        '                self.connection.execute("BEGIN IMMEDIATE")',
        "with translated():\n            try:\n"
        '                self.connection.execute("BEGIN DEFERRED")',
        (HISTORY,),
    ),
    Mutation(
        "a round after a replay is given its letters once more",
        "group.py",
        "        self._replay = None  # that was another round\n",
        "",
    ),
    Mutation(
        "partitions do not tell each other how late it is",
        "routing.py",
        "    if isinstance(stream.batches, ByInterval):\n        table = _with",
        "    if False:\n        table = _with",
        ("test_divided.py",),
    ),
    Mutation(
        "positions pass over what waits",
        "backlog.py",
        "for p, through in self._passed.items() if p not in waiting}",
        "for p, through in self._passed.items()}",
        ("test_divided.py",),
    ),
    Mutation(
        "a cut over partitions does not wait for writers",
        "reader.py",
        "                    writing.enter_context(door.writing())\n",
        "",
        ("test_partitions.py",),
    ),
    Mutation(
        "a merge cuts the file of delta",
        "runner.py",
        "sql.SQL(EMPTY).format(table=table))\n        self.crash",
        "sql.SQL('TRUNCATE {table}').format(table=table))\n        self.crash",
        (f"{RACES}::test_totals_over_live_are_the_same_at_all_times",),
        "migrations",
    ),
    Mutation(
        "a merge deletes what has arrived meanwhile",
        "merge.py",
        "connection.isolation_level = IsolationLevel.REPEATABLE_READ",
        "connection.isolation_level = IsolationLevel.READ_COMMITTED",
        (f"{RACES}::test_pushes_merges_and_rebuilds_at_once_leave_what_one_after_the_other_does",),
        "migrations",
    ),
    Mutation(
        "the core is told of what a rebuild has taken back",
        "push.py",
        "if ledger.lock(connection, dataflow.name, self.partition).batch == through:",
        "if True:",
        (RACES,),
        "migrations",
    ),
    Mutation(
        "a migration that begins again goes further than it went",
        "job.py",
        "goal = dict(self.registry.find(self.migration.id).goal)",
        "goal = dict[str, int]()",
        ("test_migration_model.py",),
        "migrations",
    ),
    Mutation(
        "what is staged is taken after what is merged, and not after what has arrived",
        "cut.py",
        "Range(snapshots[place[1]], place[1], row.batch, through)",
        "Range(snapshots[place[1]], place[1], row.merged, through)",
        (TOTALS,),
        "api",
    ),
    Mutation(
        "the cores are looked at after the warehouse",
        "cut.py",
        """\
            if most:
                snapshots = stack.enter_context(reader.cut(cores[:most]))
            seen = {
                holder: holder.snapshot([flow for flow in of if flow.is_moved])
                for holder, of in fed.items()
            }
""",
        """\
            seen = {
                holder: holder.snapshot([flow for flow in of if flow.is_moved])
                for holder, of in fed.items()
            }
            if most:
                snapshots = stack.enter_context(reader.cut(cores[:most]))
""",
        (TOTALS,),
        "api",
    ),
    Mutation(
        "a warehouse may be ahead of the cores' snapshot, and others behind it",
        "cut.py",
        "    if not snapshots or (len(snapshots) == 1 and len(seen) == 1 and not are_kept):\n",
        "    if True:\n",
        ("test_two_warehouses.py",),
        "api",
    ),
    Mutation(
        "a row that is there counts beside a staged one of its key",
        "sources.py",
        "        conditions.append(sql.SQL(IS_WRITTEN).format(not_written=not_written))\n",
        "        del not_written\n",
        (TOTALS,),
        "api",
    ),
    Mutation(
        "a warehouse's part of an answer has rows of which the key is staged",
        "sources.py",
        "return _there(shown, part, [sql.SQL(NOT_SHIPPED).format(shipped=staged, same=same)])",
        "return _there(shown, part, [])",
        ("test_equivalence.py::test_random_queries_have_the_answers_of_postgresql_by_every_plan",),
        "api",
    ),
]


def copied(folder: Path) -> Path:
    """Copy the tree."""
    for name in COPIED:
        source, target = ROOT / name, folder / name
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, target)
    return folder


def broken(mutation: Mutation, folder: Path) -> Path:
    """Copy the tree, and break it in one place."""
    module = mutation.within(copied(folder))
    text = module.read_text()
    assert text.count(mutation.old) == 1, f"{mutation.what}: does not apply to {mutation.module}"
    module.write_text(text.replace(mutation.old, mutation.new))
    return folder


def caught_by(folder: Path, tests: Sequence[str]) -> str:
    """Run tests in a copy of the tree; name the first one that fails, or nothing."""
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--tb=no"]
    ran = subprocess.run(
        [*command, *(f"tests/{test}" for test in tests)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    found = re.search(r"^(?:FAILED|ERROR) (\S+)", ran.stdout, re.MULTILINE)
    assert ran.returncode in (0, 1), ran.stdout + ran.stderr
    return found[1] if found else ""


def run(only: str) -> Iterator[tuple[Mutation, str]]:
    """Break the product in every way, one after the other, and name what caught it."""
    chosen = [mutation for mutation in MUTATIONS if only in mutation.what]
    tests = dict.fromkeys(test for mutation in chosen for test in mutation.tests)
    with tempfile.TemporaryDirectory() as home:
        (Path(home) / "whole").mkdir()
        failed = caught_by(copied(Path(home) / "whole"), list(tests))
        assert not failed, f"{failed} fails although nothing is broken"
        for number, mutation in enumerate(chosen):
            folder = Path(home) / str(number)
            folder.mkdir()
            yield mutation, caught_by(broken(mutation, folder), mutation.tests)
            shutil.rmtree(folder)


def main(only: str = "") -> None:
    survived = 0
    for mutation, test in run(only):
        survived += not test
        print(f"{mutation.what:<62} {test or 'NOTHING CAUGHT IT'}", flush=True)
    sys.exit(f"{survived} mutations survived" if survived else 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
