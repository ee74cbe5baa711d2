"""A load of TPC-DI on a real stack, of which somebody kills a part in each phase, from a seed; and
a reader who looks for what should never be seen.
"""

import hashlib
import os
import random
import re
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import LiteralString, NamedTuple

import phased
import psycopg
from fakes import is_gone
from inquiring import Inquirer, questions
from psycopg import sql
from test_stack import Stack
from waiting import until

import tpcdi
from etl_procs import Trial
from etl_procs.core import core_path
from etl_procs.reader import Reader as Core
from headrace import config
from headrace.cli.tpcdi_parts import LAST_BATCH
from headrace.cli.tpcdi_parts import Stack as Parts
from headrace.errors import Exit, HeadraceError
from headrace.local import state
from headrace.local.state import State
from tpcdi import audit, days, oracle, schema
from tpcdi.dataflow.facts import READY
from tpcdi.flow import flow
from tpcdi.generate import generate
from tpcdi.oracle.canon import digests
from tpcdi.snapshot import Connection, snapshot

FLOW = Path(tpcdi.__file__).with_name("flow.py")
SCALE, FILES_SEED = 0.01, 7
VICTIMS = ("broker", "postgres", "engine", "worker", "loader")
TOLD = re.compile(r"phase (\d): \S+, [\d,]+ rows")
WORKER = "etl_procs.worker"
SOURCES = {1: 16, 2: 8, 3: 8}
"""Of so many the loader tells in each phase."""
FACTS = {file.partition(".")[0] for file in days.FACTS}
"""Of each phase; the first has `TradeHistory` beside them."""
LATER = 4
"""So many batches after a source is told of, at most, a part is killed."""
PATIENCE_S = 600.0
AGAIN_S = 1.0
OFTEN_S = 0.1
LEISURE = 4
"""So often the reader looks, and for a fifth of the time: all the time, it would take the processor
from what it looks at.
"""
PUSH_MS, MERGE_S = 3_000, 5
"""So seldom is pushed that something is staged mostly, and so often merged that `main` moves."""
LIMIT_S = 500.0
"""How long a start may take: a busy machine takes its time for 22 streams."""

REFERS: Mapping[str, tuple[LiteralString, ...]] = {
    "dimsecurity": ("sk_companyid",),
    "dimaccount": ("sk_brokerid", "sk_customerid"),
    "financial": ("sk_companyid",),
    "dimtrade": (
        *("sk_brokerid", "sk_securityid", "sk_companyid", "sk_customerid", "sk_accountid"),
        *("sk_createdateid", "sk_createtimeid", "sk_closedateid", "sk_closetimeid"),
    ),
    "factcashbalances": ("sk_customerid", "sk_accountid", "sk_dateid"),
    "factholdings": (
        *("sk_customerid", "sk_accountid", "sk_securityid", "sk_companyid"),
        *("sk_dateid", "sk_timeid", "currenttradeid"),
    ),
    "factmarkethistory": (
        *("sk_securityid", "sk_companyid", "sk_dateid"),
        *("sk_fiftytwoweekhighdate", "sk_fiftytwoweeklowdate"),
    ),
    "factwatches": (
        *("sk_customerid", "sk_securityid", "sk_dateid_dateplaced", "sk_dateid_dateremoved"),
    ),
    "prospect": ("sk_recorddateid", "sk_updatedateid"),
}
DIMENSIONS = {
    "sk_brokerid": "dimbroker",
    "sk_companyid": "dimcompany",
    "sk_securityid": "dimsecurity",
    "sk_customerid": "dimcustomer",
    "sk_accountid": "dimaccount",
}
ORPHANS = sql.SQL(
    "SELECT count(*) FROM tpcdi.{table} AS of WHERE {column} IS NOT NULL AND NOT EXISTS "
    "(SELECT FROM tpcdi.{dimension} WHERE {key} = of.{column})"
)


def references() -> Iterator[tuple[str, str, str, str]]:
    """Give each column that refers to another: tables and columns of both."""
    for table, columns in REFERS.items():
        for column in columns:
            if column == "currenttradeid":
                yield table, column, "dimtrade", "tradeid"
            elif column in DIMENSIONS:
                yield table, column, DIMENSIONS[column], column
            elif column.endswith("timeid"):
                yield table, column, "dimtime", "sk_timeid"
            else:
                yield table, column, "dimdate", "sk_dateid"


def _orphans(table: str, column: str, dimension: str, key: str) -> sql.Composable:
    return ORPHANS.format(
        table=sql.Identifier(table),
        column=sql.Identifier(column),
        dimension=sql.Identifier(dimension),
        key=sql.Identifier(key),
    )


class Reader:
    """Counts, again and again, what refers to something that is not there."""

    def __init__(self) -> None:
        self._over = threading.Event()
        self.looks = Counter[int]()
        """How often it has looked, by the phase that was loaded then."""
        self.found: set[str] = set()
        self._query = sql.SQL(" UNION ALL ").join(
            sql.SQL("SELECT {}, ({})").format(f"{of[0]}.{of[1]}", _orphans(*of))
            for of in references()
        )

    @contextmanager
    def reading(self, parts: Parts) -> Iterator[None]:
        """Read for as long as this lasts."""
        thread = threading.Thread(target=self._run, args=[parts], daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()

    def _run(self, parts: Parts) -> None:
        while not self._over.is_set():
            try:
                with parts.warehouse() as warehouse:
                    pause = OFTEN_S
                    while not self._over.wait(pause):
                        began, phase = time.monotonic(), len(parts.ended()) + 1
                        self.read(warehouse)
                        self.looks[phase] += 1
                        pause = max(OFTEN_S, LEISURE * (time.monotonic() - began))
            except (psycopg.Error, HeadraceError):  # it was killed, or has no tables yet
                self._over.wait(AGAIN_S)

    def read(self, warehouse: Connection) -> None:
        """Look once."""
        with snapshot(warehouse):
            rows = warehouse.execute(self._query).fetchall()
        self.found |= {str(name) for name, count in rows if count}


class Course(NamedTuple):
    """What happened while all was loaded."""

    killed: "list[Moment]"
    amid_facts: set[int]
    looks: Counter[int]
    inquirer: Inquirer


class Moment(NamedTuple):
    """When a part is killed: the core has committed so many batches since so many sources of a
    phase were told of; or, in one of the phases, it has begun with facts.
    """

    phase: int
    sources: int
    batches: int
    victim: str
    is_amid_facts: bool


class Loading(Stack):
    """A stack with the dataflow of TPC-DI, and its load."""

    limit_s = LIMIT_S

    def __init__(self, folder: Path, files: Path, seed: int) -> None:
        super().__init__(folder)
        self._files = files
        self._choose = random.Random(seed)  # noqa: S311 - of a test
        self._phase_of_facts = 1 + seed % len(SOURCES)
        given = {"home": str(self.home.root), "flows": str(FLOW)}
        given["supervisor.ready_timeout_s"] = str(int(self.limit_s))
        given |= {"push.every_ms": str(PUSH_MS), "merge.every_s": str(MERGE_S)}
        self._environment = config.child_environment(given)
        self._core = Core(core_path(self.home.root, 0))
        self.config = config.load(given, environment={}).config
        self.killed: list[Moment] = []
        self.amid_facts: set[int] = set()
        """The phases of which a part was killed while their facts were loaded."""

    @contextmanager
    def running(self) -> Iterator[None]:
        """Have the stack for as long as this lasts."""
        code, told = self.run("up", "--detach")
        assert code == Exit.OK, told
        try:
            yield
        finally:
            self.run("down")

    def load(self, phases: int = 3, kills: int = 1) -> None:
        """Load all phases, with kills in each, and go on where it was when the loader ends."""
        moments = [
            Moment(
                phase,
                self._choose.randrange(1, SOURCES[phase]),
                self._choose.randrange(LATER),
                victim,
                phase == self._phase_of_facts,
            )
            for phase in range(1, phases + 1)
            for victim in self._choose.sample(VICTIMS, kills)
        ]
        deadline = time.monotonic() + PATIENCE_S * phases
        while self._attempt(moments) != Exit.OK:
            assert time.monotonic() < deadline, self.log()
            until(self.is_ready, self.limit_s, self.log)
        until(self.is_ready, self.limit_s, self.log)
        assert not moments, f"{moments} did not come"

    def _attempt(self, moments: list[Moment]) -> int:
        """Run the loader until it ends; kill what is due."""
        loader = self.start("tpcdi", "load", str(self._files))
        told: list[str] = []
        counts = dict.fromkeys(SOURCES, 0)
        assert loader.stdout is not None
        for line in loader.stdout:
            told.append(line)
            if not (found := TOLD.match(line)):
                continue
            counts[int(found[1])] += 1
            # Of one that lies before this attempt, the time has come too.
            for moment in [m for m in moments if m[:2] <= (int(found[1]), counts[int(found[1])])]:
                moments.remove(moment)
                self._kill(moment, loader)
        code = loader.wait(self.limit_s)
        assert code in (Exit.OK, Exit.FAILED, Exit.NOT_RUNNING, Exit.REFUSED, -signal.SIGKILL), (
            code,
            "".join(told)[-4_000:],
        )
        return code

    def _kill(self, moment: Moment, loader: "subprocess.Popen[str]") -> None:
        last = self.committed() + moment.batches

        def is_due() -> bool:
            if moment.is_amid_facts:
                return self._complete(moment.phase) >= {*READY}
            return self.committed() >= last

        until(lambda: loader.poll() is not None or is_due(), self.limit_s, self.log)
        self.killed.append(moment)
        if moment.victim == "loader":
            self._note(moment.phase)
            loader.kill()
            return
        living: list[int] = []

        def is_living() -> bool:
            living[:] = self._processes(moment.victim)
            return bool(living)

        until(is_living, self.limit_s, self.log)
        self._note(moment.phase)
        os.kill(living[0], signal.SIGKILL)

    def _note(self, phase: int) -> None:
        """Note whether facts are loaded now: dimensions are complete, and some facts are not."""
        complete = self._complete(phase)
        if complete >= {*READY} and not complete >= FACTS:
            self.amid_facts.add(phase)

    def _complete(self, phase: int) -> set[str]:
        with self._core.snapshot() as core:
            _, rows = core.query("SELECT what FROM complete WHERE batch = ?", [phase])
            return {str(what) for (what,) in rows}

    def _processes(self, victim: str) -> list[int]:
        """Give the process of a part, once the stack is ready: the engine has the worker."""
        part = "engine" if victim == "worker" else victim
        stack = state.running(self.home)
        if stack is None or stack.state is not State.READY:
            return []
        pid = stack.parts[part].pid
        if pid is None or is_gone(pid):
            return []
        return [pid] if victim == part else self._workers(pid)

    def _workers(self, engine: int) -> list[int]:
        try:
            children = Path(f"/proc/{engine}/task/{engine}/children").read_text().split()
            named = [c for c in children if WORKER in Path(f"/proc/{c}/cmdline").read_text()]
        except OSError:  # one of them is gone
            return []
        return [int(child) for child in named]

    def committed(self) -> int:
        with self._core.snapshot() as core:
            _, rows = core.query(LAST_BATCH, [flow.name])
            ((batch,),) = rows
            return int(batch or 0)


def files_of(folder: Path) -> Path:
    """Make the directory that is loaded, with a part of the clock's 86,400 rows."""
    files = folder / "files"
    generate(files, SCALE, FILES_SEED)
    phased.shorten_clock(files)
    return files


def undisturbed(files: Path) -> dict[str, str]:
    """Load without a stack; digest the canonical rows, by table."""
    with Trial(flow) as trial:
        phased.load(trial, files)
        rows = phased.exported(trial)
    return {table: hashlib.sha256(of_table).hexdigest() for table, of_table in rows.items()}


def load_and_kill(
    folder: Path, files: Path, wanted: dict[str, str], seed: int, kills: int = 1
) -> Course:
    """Load with kills in each phase: nothing is seen without its dimensions, all that the island
    answers is right, and at the end the audit passes, and each table is that of the undisturbed
    load and of the oracle.
    """
    loading = Loading(folder, files, seed)
    with loading.running():
        reader, parts = Reader(), Parts(loading.config)
        inquirer = Inquirer(loading.home, questions(references()), seed, kills_api=kills > 1)
        with reader.reading(parts), inquirer.inquiring(parts):
            loading.load(kills=kills)
        inquirer.finish(loading.committed())
        with parts.warehouse() as warehouse, oracle.compute(files) as computed:
            wrong = {one.name: one.wrong for one in audit.run(warehouse) if not one.ok}
            differences = oracle.compare(warehouse, computed)
            found = digests(warehouse)
    told = f"seed {seed}, killed: {loading.killed}"
    assert reader.found == set(), (told, reader.found)
    assert reader.looks, told
    assert wrong.keys() <= {"DimCustomer LocalTaxRate"}, (told, wrong)  # it wants more descriptions
    assert differences == [], told
    assert [table for table in schema.TABLES if found[table] != wanted[table]] == [], told
    return Course(loading.killed, loading.amid_facts, reader.looks, inquirer)
