"""The explainer: writes what the stages of a plan would do, for people."""

from collections.abc import Iterator

from etl_procs.model import Outlet
from migrations import tables
from migrations.plan import (
    Adopt,
    Confirm,
    Copy,
    Merge,
    Plan,
    Refill,
    Stage,
    Step,
    StepMerged,
    Vacuum,
)

UNITS = ("B", "KiB", "MiB", "GiB")


def lines(plan: Plan) -> Iterator[str]:
    """Write a plan, a line for each stage."""
    if plan.together:
        yield "in one transaction of the warehouse:"
        yield from (f"  {explained(stage)}" for stage in plan.together)
    if plan.then:
        yield "then:"
        yield from (f"  {explained(stage)}" for stage in plan.then)


def explained(stage: Stage) -> str:
    """Write one stage."""
    match stage:
        case Copy(outlet, partition, after, through, rows, size):
            batches = f"batches {after + 1} to {through} of partition {partition}"
            what = f"{counted(rows, 'row')} ({_sized(size)})"
            return f"copy {what} of {batches} into {_delta(outlet)}"
        case Step((dataflow, partition), arrived, through, _):
            return f"step the ledger of {dataflow}[{partition}] from {arrived.batch} to {through}"
        case Confirm((dataflow, partition), _, through):
            return (
                f"confirm {dataflow}[{partition}] through batch {through} to the core, which "
                "forgets what all warehouses have"
            )
        case Merge(outlet):
            how = f"by {', '.join(outlet.key)}" if outlet.key else "by appending"
            return f"merge {_delta(outlet)} into {_main(outlet)} {how}"
        case StepMerged(dataflow):
            return f"say in the ledger that all of {dataflow} that has arrived is in main"
        case Vacuum(outlet):
            return f"vacuum {_delta(outlet)}"
        case Refill(outlet):
            return f"replace {_main(outlet)} by what the other warehouse has"
        case Adopt((dataflow, partition), arrived):
            return f"say in the ledger that {dataflow}[{partition}] is at batch {arrived.batch}"


def counted(number: int, what: str) -> str:
    """Write how many there are of something."""
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def _sized(size: float) -> str:
    """Write a number of bytes."""
    for unit in UNITS[:-1]:
        if size < 1024:
            return f"{size:.0f} {unit}"
        size /= 1024
    return f"{size:.1f} {UNITS[-1]}"


def _main(outlet: Outlet) -> str:
    return tables.main(outlet).fullname


def _delta(outlet: Outlet) -> str:
    return tables.delta(outlet).fullname
