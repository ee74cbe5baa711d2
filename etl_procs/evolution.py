"""Evolution: what a core holds is brought to what is declared now, or refused, so that nothing is
lost in between. Each function says what it has changed.
"""

import sqlite3
from collections.abc import Mapping

from etl_procs import history, ledger, pending, published, staging, tables
from etl_procs.dataflow import Dataflow
from etl_procs.dead_letters import DeadLetters
from etl_procs.errors import DefinitionChanged
from etl_procs.execution import Plan
from etl_procs.history import History
from etl_procs.rules import rule_of


def bring_over(
    connection: sqlite3.Connection, plan: Plan, at: str, history_mb_max: int
) -> list[str]:
    """Bring all that a core holds of a dataflow to its definition; `at` is the time now."""
    dataflow = plan.dataflow
    ledger.divide(connection, dataflow.name, dataflow.partitions)
    if dataflow.partitions > 1:
        ledger.key(connection, dataflow.name, {s.name: s.key for s in dataflow.borders})
    history.begin(connection, dataflow.name)
    past = History.of(connection, dataflow.name)
    said = tables.make(connection, plan)
    was = ledger.done(connection, dataflow.name)
    said += _bring_procedures(connection, dataflow, was)
    said += ledger.keep_epoch(connection, dataflow.name, rule_of(dataflow.borders))
    history.keep(connection, past, history_mb_max)
    done = ledger.done(connection, dataflow.name)
    said += _set_orphans_aside(connection, plan, was, done, at)
    said += _bring_nests(connection, plan, done)
    staging.check(connection, dataflow)
    for name in published.of(connection, dataflow.name).keys() - dataflow.streams.keys():
        published.unpublish(connection, dataflow.name, name)
        said.append(f"stream {dataflow.name}.{name} is gone, and nothing of it is published")
    return said


def _bring_procedures(
    connection: sqlite3.Connection, dataflow: Dataflow, was: dict[str, int]
) -> list[str]:
    """Give each procedure its place in the ledger: its old one, or that of who is furthest.

    `was` are the old ones; a procedure that was renamed has its new name there afterwards.
    """
    name, said = dataflow.name, []
    renamed = [p for p in dataflow.procedures.values() if p.was]
    while now := next((p for p in renamed if p.was in was and p.name not in was), None):
        ledger.rename(connection, name, now.was, now.name)
        DeadLetters(connection).rename(name, now.was, now.name)
        was[now.name] = was.pop(now.was)  # and so its old name is free for another
        said.append(f"procedure {name}.{now.was} is {now.name} now")
    last = max(was.values(), default=0)
    for new in [p for p in dataflow.procedures if p not in was]:
        ledger.enter(connection, name, new, last)
        if last:
            said.append(f"procedure {name}.{new} is new: it begins with batch {last + 1}")
    for gone in was.keys() - dataflow.procedures.keys():
        ledger.leave(connection, name, gone)
        said.append(f"procedure {name}.{gone} is gone, after batch {was[gone]}")
    return said


def _set_orphans_aside(
    connection: sqlite3.Connection,
    plan: Plan,
    was: Mapping[str, int],
    done: Mapping[str, int],
    at: str,
) -> list[str]:
    """Make dead letters of pending batches that nobody is left to take."""
    name, said = plan.dataflow.name, []
    for batch in list(pending.all_of(connection, plan.dataflow)):
        stream = batch.stream
        if all(done[taker] >= batch.id for taker in plan.consumers.get(stream.name, ())):
            reason = "the procedure that was to take it is gone"
            took = ledger.takers(connection, name, stream.name)
            gone = "+".join(taker for taker in took if was.get(taker, batch.id) < batch.id)
            DeadLetters(connection).add_batch(gone, batch, reason, 0, at)
            pending.drop(connection, name, [(stream.name, batch.id)])
            said.append(f"batch {batch.id} of {stream.full_name} is a dead letter now: {reason}")
    return said


def _bring_nests(connection: sqlite3.Connection, plan: Plan, done: Mapping[str, int]) -> list[str]:
    """Note what the units are now, which run their batches as one."""
    for unit in plan.units:
        if len({done[procedure.name] for procedure in unit.procedures}) > 1:
            places = " and ".join(f"{p.name} at batch {done[p.name]}" for p in unit.procedures)
            raise DefinitionChanged(
                f"dataflow {plan.dataflow.name} nests procedures that are not at the same batch: "
                f"{places}",
                hint="Bring the old definition back until the batches in flight are done.",
            )
    name = plan.dataflow.name
    before = ledger.nests(connection, name)
    ledger.take(connection, name, plan.units)
    now = ledger.nests(connection, name)
    if not any(done.values()):
        return []  # nothing has run: nothing changes
    said = [f"{nest} of {name} are nested" for nest in sorted(now - before)]
    return [*said, *(f"{nest} of {name} are nested no more" for nest in sorted(before - now))]
