"""Gauges: what is known of each node of a picture just now."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from api.picture import Kind, Node
from etl_procs.metrics import BOUNDS

Figures = Sequence[Mapping[str, Any]]
"""What the engine measures of each partition; none where no engine does."""


def of_node(
    flow: str, node: Node, figures: Figures, staged: Mapping[str, tuple[int, int]]
) -> dict[str, float | None]:
    """Give what is known of a node, over all partitions; `staged` are rows and bytes by outlet."""
    name, unit = f"{flow}.{node.name}", f"{flow}.{node.unit}"
    match node.kind:
        case Kind.BORDER:
            queues = [of["queues"].get(name, {}) for of in figures]
            return {
                "tuples_per_s": _rate(figures, "tuples", name),
                "waiting_tuples": _all(queue.get("tuples", 0) for queue in queues),
                "oldest_s": max((queue.get("oldest_s", 0.0) for queue in queues), default=None),
            }
        case Kind.STREAM:
            return {"batches_per_s": _rate(figures, "units", unit)}
        case Kind.PROCEDURE:
            return {
                "batches_per_s": _rate(figures, "units", unit),
                "p50_s": _median([of["units"][unit] for of in figures if unit in of["units"]]),
                "aborts": _all(of["aborts"].get(unit, 0) for of in figures),
                "dead_batches": _all(of["dead_batches"].get(unit, 0) for of in figures),
            }
        case Kind.TABLE:
            parked = [of["parked"][name] for of in figures if name in of["parked"]]
            return {"parked_rows": sum(parked)} if parked else {}
        case Kind.OUTLET:
            rows, size = staged.get(name, (0, 0))
            return {"staged_rows": rows, "staged_bytes": size}
        case _:
            return {}


def _rate(figures: Sequence[Mapping[str, Any]], kind: str, name: str) -> float | None:
    """Add up what has a rate; None until an engine has measured for a second."""
    found = [of["rates"][kind].get(name, 0.0) for of in figures if of["rates"]]
    return sum(found) if found else None


def _all(counts: Iterable[int]) -> int | None:
    """Add counts up; None where nobody counts."""
    found = list(counts)
    return sum(found) if found else None


def _median(histograms: Sequence[Mapping[str, Any]]) -> float | None:
    """Give the bound that half of what was measured does not exceed."""
    half = sum(of["count"] for of in histograms) / 2
    below = 0
    for bound in BOUNDS:
        below += sum(of["buckets"].get(bound, 0) for of in histograms)
        if half and below >= half:
            return float(bound)
    return None
