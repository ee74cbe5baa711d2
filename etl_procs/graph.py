"""The graph of a dataflow: who gives each stream, who takes it, and in which order they run."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING

from etl_procs.model import Given, Outlet, Procedure, Stream, Trigger
from etl_procs.rules import ByCount, ByInterval
from headrace.errors import DefinitionError

if TYPE_CHECKING:
    from etl_procs.dataflow import Dataflow


@dataclass(frozen=True, slots=True)
class Unit:
    """What commits as one: a procedure, or a nested group of them, in the order they run."""

    name: str
    """The names of its procedures, joined by +."""
    procedures: tuple[Procedure, ...]
    takes: tuple[Stream, ...]
    """The streams that come from outside the unit."""


def units(dataflow: "Dataflow") -> list[Unit]:
    """Order a dataflow's units so that each comes after those that give what it takes."""
    groups, producers = _groups(dataflow), _producers(dataflow)
    givers = {
        procedure.name: [producers[s.name] for s in procedure.takes if s.name in producers]
        for procedure in dataflow.procedures.values()
    }
    order = list(TopologicalSorter(givers).static_order())
    # No sets: where any order will do, it is the same in every process.
    before = {
        group: [groups[giver] for name in group for giver in givers[name] if giver not in group]
        for group in groups.values()
    }
    made = []
    for group in TopologicalSorter(before).static_order():
        members = tuple(dataflow.procedures[name] for name in order if name in group)
        takes = {s.name: s for p in members for s in p.takes if producers.get(s.name) not in group}
        name = "+".join(member.name for member in members)
        made.append(Unit(name, members, tuple(takes.values())))
    return made


def consumers(dataflow: "Dataflow") -> dict[str, tuple[str, ...]]:
    """Name, for each stream, the procedures that take it."""
    return {
        name: tuple(p.name for p in dataflow.procedures.values() if stream in p.takes)
        for name, stream in dataflow.streams.items()
    }


def corrections(dataflow: "Dataflow") -> tuple[Stream, ...]:
    """Give the streams to which border streams give what is late."""
    lates = map(_late_of, dataflow.borders)
    return tuple(late for late in lates if late is not None)


def _late_of(border: Stream) -> Stream | None:
    """Give the stream of what is late in a border stream, if that has one."""
    rule = border.batches
    return rule.late if isinstance(rule, ByInterval) and isinstance(rule.late, Stream) else None


def writers(dataflow: "Dataflow", outlet: Outlet) -> tuple[Procedure, ...]:
    """Give the procedures that give to an outlet, themselves or through triggers."""
    return tuple(
        procedure
        for procedure in dataflow.procedures.values()
        if outlet in reached_by(procedure, dataflow.triggers)
    )


def upstream(dataflow: "Dataflow", procedures: Iterable[Procedure]) -> tuple[Stream, ...]:
    """Give the border streams from which batches come to procedures, however far."""
    producers, found = _producers(dataflow), set[str]()
    waiting = [stream.name for procedure in procedures for stream in procedure.takes]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            if name in producers:
                waiting += [s.name for s in dataflow.procedures[producers[name]].takes]
            late = [s for s in dataflow.borders if dataflow.streams[name] is _late_of(s)]
            waiting += [stream.name for stream in late]
    return tuple(stream for stream in dataflow.borders if stream.name in found)


def check(dataflow: "Dataflow") -> None:
    """Refuse a dataflow that could not run."""
    if not dataflow.procedures and not dataflow.calls:
        raise DefinitionError(
            f"dataflow {dataflow.name} has no procedure",
            hint=f"Decorate a function with @{dataflow.name}.procedure(takes=...).",
        )
    _check_streams(dataflow)
    _check_windows(dataflow)
    _check_order(dataflow)
    _check_keys(dataflow)
    rules = [stream.batches for stream in dataflow.borders]
    if len({rule.length if isinstance(rule, ByInterval) else 0 for rule in rules}) > 1:
        raise DefinitionError(
            f"dataflow {dataflow.name} cuts its streams by event time and otherwise, or by "
            "different intervals: batch r of one would have no meaning for the other",
            hint="Give its border streams by_interval of one length, or none of them.",
        )


def _check_streams(dataflow: "Dataflow") -> None:
    producers = _producers(dataflow)
    taken = consumers(dataflow)
    for stream in dataflow.streams.values():
        of = f"stream {dataflow.name}.{stream.name}"
        giver = producers.get(stream.name) or (
            "the log" if stream in corrections(dataflow) else None
        )
        if giver is None and stream.batches is None:
            raise DefinitionError(
                f"{of} is given by no procedure, and has no batch rule to come from outside with",
                hint="Give it one: batches=by_count(1000, linger_s=0.1); or name it in the gives "
                "of a procedure.",
            )
        if stream in corrections(dataflow) and stream.name in producers:
            raise DefinitionError(
                f"{of} is given by {producers[stream.name]}, and takes what is late of another",
                hint="A stream has one producer: declare a second stream, and take both.",
            )
        if giver is not None and stream.batches is not None:
            raise DefinitionError(
                f"{of} has a batch rule, and is given by {giver}: its batches are that one's",
                hint="Leave the rule away, or give into another stream.",
            )
        if not taken[stream.name]:
            raise DefinitionError(
                f"{of} is taken by no procedure", hint="Name it in the takes of one."
            )


def _check_windows(dataflow: "Dataflow") -> None:
    for window in dataflow.windows.values():
        owners = [routine.name for routine in dataflow.routines if window in routine.gives]
        if len(owners) != 1:
            raise DefinitionError(
                f"window {dataflow.name}.{window.name} is given by "
                f"{', '.join(owners) or 'no procedure'}, and belongs to exactly one",
                hint="Name it in the gives of the one that fills and reads it; others take a "
                "stream or read a table.",
            )


def _check_order(dataflow: "Dataflow") -> None:
    try:
        units(dataflow)
        TopologicalSorter(_calling(dataflow)).prepare()
    except CycleError as error:
        names = [n if isinstance(n, str) else "+".join(n) for n in error.args[1]]
        raise DefinitionError(
            f"dataflow {dataflow.name} goes in a circle: {' -> '.join(reversed(names))}",
            hint="Take one of these streams away, or keep the state between batches in a table. "
            "(A nested group must not give to what it takes from.)",
        ) from None


def _check_keys(dataflow: "Dataflow") -> None:
    """Refuse what would not know its partition."""
    if dataflow.partitions == 1:
        return
    keyless = [f"stream {stream.name}" for stream in dataflow.borders if not stream.key]
    keyless += [f"call {call.name}" for call in dataflow.calls.values() if not call.key]
    if keyless:
        raise DefinitionError(
            f"dataflow {dataflow.name} runs on {dataflow.partitions} partitions, and these say "
            f"not on which: {', '.join(keyless)}",
            hint='Give each of them the column, or argument, that decides: key="account".',
        )
    rules = {stream.name: stream.batches for stream in dataflow.borders}
    endless = [n for n, rule in rules.items() if isinstance(rule, ByCount) and not rule.linger_s]
    if len(rules) > 1 and endless:
        raise DefinitionError(
            f"dataflow {dataflow.name} runs on {dataflow.partitions} partitions and takes several "
            f"streams, of which {', '.join(endless)} may end no batch: a partition that has tuples "
            "of one and none of the other would wait for ever, and hold the others back",
            hint="Let its batches end by time as well: by_count(1000, linger_s=0.1).",
        )


def _producers(dataflow: "Dataflow") -> dict[str, str]:
    """Name the procedure that gives each stream, itself or through a trigger."""
    found: dict[str, str] = {}
    for procedure in dataflow.procedures.values():
        for stream in reached_by(procedure, dataflow.triggers):
            if not isinstance(stream, Stream):
                continue
            other = found.setdefault(stream.name, procedure.name)
            if other != procedure.name:
                raise DefinitionError(
                    f"stream {dataflow.name}.{stream.name} is given by {other} and by "
                    f"{procedure.name}",
                    hint="A stream has one producer: declare a second stream, and take both.",
                )
    return found


def reached_by(procedure: Procedure, triggers: Mapping[str, Trigger]) -> list[Given]:
    """Find what a procedure gives, itself or through triggers: each after what sets it off."""
    found: list[Given] = []
    waiting = list(procedure.gives)
    while waiting:
        thing = waiting.pop()
        if thing not in found:
            found.append(thing)
            waiting += [given for t in triggers.values() if t.on is thing for given in t.gives]
    return found


def _calling(dataflow: "Dataflow") -> dict[str, set[str]]:
    """Name, for each trigger, the triggers that what it gives sets off."""
    return {
        trigger.name: {t.name for t in dataflow.triggers.values() if t.on in trigger.gives}
        for trigger in dataflow.triggers.values()
    }


def _groups(dataflow: "Dataflow") -> dict[str, tuple[str, ...]]:
    nested = {name: nest for nest in dataflow.nests for name in nest}
    return {name: nested.get(name, (name,)) for name in dataflow.procedures}
