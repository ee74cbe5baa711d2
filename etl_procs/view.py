"""The view: one dataflow on one core, as the status and the status page show it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T", int, float)


@dataclass(frozen=True, slots=True)
class FlowView:
    """One dataflow: the first two are the core's, the others a living engine's."""

    batch: int
    dead_letters: int
    batches_per_s: float | None = None
    tuples_per_s: float | None = None
    aborts: int | None = None
    dead_batches: int | None = None
    repeats: int | None = None
    waiting_tuples: int | None = None
    oldest_s: float | None = None
    watermark: int | None = None
    lookup_hits: float | None = None
    """The share of keys looked up that an index answered; None before the first."""
    parked_rows: int | None = None
    """Rows in its tables that park."""


def of(name: str, batch: int, letters: int, figures: Mapping[str, Any] | None) -> FlowView:
    """See a dataflow with these dead letters at its last batch; figures are of a living engine."""
    return FlowView(batch, letters, **({} if figures is None else _measures(name, figures)))


def _measures(name: str, figures: Mapping[str, Any]) -> dict[str, Any]:
    queues = [q for stream, q in figures["queues"].items() if stream.partition(".")[0] == name]
    rates = figures["rates"]
    return {
        "batches_per_s": rates["batches"].get(name, 0.0) if rates else None,
        "tuples_per_s": _of(name, rates["tuples"]) if rates else None,
        "aborts": _of(name, figures["aborts"]),
        "dead_batches": _of(name, figures["dead_batches"]),
        "repeats": sum(queue["repeats"] for queue in queues),
        "waiting_tuples": sum(queue["tuples"] for queue in queues),
        "oldest_s": max((queue["oldest_s"] for queue in queues), default=0.0),
        "watermark": figures["epochs"].get(name),
        "lookup_hits": _share(
            of for lookup, of in figures["lookups"].items() if lookup.partition(".")[0] == name
        ),
        "parked_rows": _of(name, figures["parked"]),
    }


def _of(name: str, by_unit: Mapping[str, T]) -> T | int:
    return sum(count for unit, count in by_unit.items() if unit.partition(".")[0] == name)


def _share(lookups: Iterable[Mapping[str, int]]) -> float | None:
    looked = [(of["hits"], of["hits"] + of["misses"]) for of in lookups]
    asked = sum(count for _, count in looked)
    return sum(hits for hits, _ in looked) / asked if asked else None
