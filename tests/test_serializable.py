"""An engine and clients in processes of their own, killed and started again: whatever they read
and append, some order of their transactions explains it, and it is the promised one.
"""

import json
import random
import signal
import sqlite3
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from hammering import AFTER, FLOW, PAIR
from history import Append, Done, Flow, Kind, Read, check, explain
from waiting import until

from etl_procs.core import core_path

PROGRAM = Path(__file__).parent / "hammering.py"
NESTED = ("second", "third")
CRASHES = {
    "engine": ("core.commit.before", "core.commit.after"),
    "client": ("core.call.before", "core.call.after"),
}


class Hammer:
    """Keeps the processes running until all batches are done, and kills some of them."""

    def __init__(self, home: Path, *, clients: int, batches: int, kills: int, seed: int) -> None:
        self.home, self.batches, self.kills = home, batches, kills
        self.choose = random.Random(seed)  # noqa: S311
        self.roles = {"engine": "engine", **{f"client{n}": "client" for n in range(clients)}}
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.killed: dict[str, int] = defaultdict(int)

    def run(self) -> None:
        self._start("engine")
        until(lambda: self._size("engine") > 0 or self._ended("engine"), 60, self._tell)
        for name in self.roles:
            if name != "engine":
                self._start(name)
        try:
            until(self._is_done, 900, self._tell)
        finally:
            for process in self.processes.values():
                process.kill()
                process.wait()

    def _is_done(self) -> bool:
        """Start again who was killed; kill somebody who has got further, while kills are left."""
        for name, process in self.processes.items():
            code = process.poll()
            if code == -signal.SIGKILL:
                self.killed[name] += 1
                self._start(name)
            assert code in (None, 0, -signal.SIGKILL), f"{name}: {code}\n{self._errors(name)}"
        if sum(self.killed.values()) < self.kills:
            name = self.choose.choice(list(self.processes))
            if self._size(name) > self.sizes[name] + 20_000:
                self.processes[name].kill()
        return all(process.poll() == 0 for process in self.processes.values())

    def _start(self, name: str) -> None:
        role = self.roles[name]
        crash_at = ""
        if sum(self.killed.values()) < self.kills:
            crash_at = f"{self.choose.choice(CRASHES[role])}:{self.choose.randint(5, 60)}"
        command = [sys.executable, str(PROGRAM), role, str(self.home), name, crash_at]
        self.sizes = {**getattr(self, "sizes", {}), name: self._size(name)}
        with (self.home / f"{name}.err").open("ab") as errors:
            self.processes[name] = subprocess.Popen([*command, str(self.batches)], stderr=errors)

    def _ended(self, name: str) -> bool:
        return self.processes[name].poll() is not None

    def _tell(self) -> str:
        ended = {name: process.poll() for name, process in self.processes.items()}
        return f"ended: {ended}; killed: {dict(self.killed)}"

    def _errors(self, name: str) -> str:
        return (self.home / f"{name}.err").read_text()[-2000:]

    def _size(self, name: str) -> int:
        path = self.home / f"{name}.jsonl"
        return path.stat().st_size if path.exists() else 0

    def history(self) -> list[Done]:
        """Read what everybody wrote down."""
        found: dict[str, dict[str, Any]] = {}
        for name in self.roles:
            for line in (self.home / f"{name}.jsonl").read_text().splitlines():
                known = json.loads(line)
                # A call that is made again, and runs again, has not run before.
                found.setdefault(known["id"], {"role": self.roles[name]}).update(known)
        return [_done(of) for of in found.values()] + self._set_aside()

    def _set_aside(self) -> list[Done]:
        rows = self.query("SELECT DISTINCT unit, batch FROM headrace_dead_letters")
        return [
            _done(
                {
                    "id": f"dead-{member}-{batch}",
                    "ops": [],
                    "committed": True,
                    "procedure": member,
                    "batch": batch,
                    "role": "engine",
                }
            )
            for unit, batch in rows
            for member in unit.split("+")
        ]

    def final(self) -> dict[str, list[str]]:
        lists: dict[str, list[str]] = defaultdict(list)
        for key, id_ in self.query("SELECT key, id FROM lists ORDER BY number"):
            lists[key].append(id_)
        return lists

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        with sqlite3.connect(core_path(self.home)) as connection:
            return connection.execute(sql).fetchall()


def _done(of: dict[str, Any]) -> Done:
    is_call = of["role"] == "client"
    return Done(
        of["id"],
        Kind.CALL if is_call else Kind.BATCH,
        of.get("committed"),
        tuple(
            Append(op[1]) if op[0] == "append" else Read(op[1], tuple(op[2])) for op in of["ops"]
        ),
        dataflow="" if is_call else FLOW,
        procedure=of.get("procedure", ""),
        batch=of.get("batch", 0),
        began=of.get("began") if is_call else None,
        ended=of.get("ended") if is_call else None,
        nested=PAIR if of.get("procedure") in NESTED else None,
    )


def hammered(home: Path, *, clients: int, batches: int, kills: int, seed: int) -> list[Done]:
    """Run it all, check the history, and give it."""
    hammer = Hammer(home, clients=clients, batches=batches, kills=kills, seed=seed)
    hammer.run()
    ((last,),) = hammer.query("SELECT min(batch) FROM headrace_ledger")
    assert last >= batches
    history = hammer.history()
    flow = Flow(FLOW, AFTER, {PAIR: NESTED}, range(1, last + 1))
    anomalies = check(history, hammer.final(), [flow])
    assert not anomalies, explain(anomalies)
    assert hammer.killed["engine"] >= 1
    assert sum(hammer.killed.values()) >= kills
    return history


@pytest.mark.parametrize("seed", [1])
def test_killed_engines_and_clients_leave_a_history_without_anomalies(
    tmp_path: Path, seed: int
) -> None:
    history = hammered(tmp_path, clients=3, batches=400, kills=10, seed=seed)
    calls = [done for done in history if done.kind is Kind.CALL and done.committed]
    batches = [done for done in history if done.kind is Kind.BATCH and done.committed]
    assert len(calls) > 200
    assert len(batches) > 1500
