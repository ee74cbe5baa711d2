"""`headrace tpcdi audit`: the checks put to the warehouse, and its comparison with the files.

The checks need the warehouse alone, for what they want is in its table `audit`; the comparison
needs the files.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.cli.command import Context
from headrace.cli.tpcdi_origin import Origin, chosen
from headrace.cli.tpcdi_parts import Stack, tell
from headrace.errors import ConfigError, Exit, Refused

if TYPE_CHECKING:
    from tpcdi.audit import Verdict
    from tpcdi.oracle import Difference

LAST_BATCH_OF_FILES = 3


def run_audit(context: Context) -> int:
    """Tell what is wrong in a warehouse; refused is only the comparison, when all else is done."""
    from tpcdi import audit, oracle

    folder, left_out = _directory(context)
    differences = None
    with Stack(context.config).warehouse() as warehouse:
        _warn_of(audit.last_batch(warehouse))
        verdicts = audit.run(warehouse)
        if folder is not None:
            tell(f"computing all tables from {folder}, to compare them row by row")
            differences = oracle.compare(warehouse, oracle.compute(folder))
    why_not = None if left_out is None else left_out.what
    (_print_json if context.arguments.json else _print)(verdicts, differences, why_not)
    if differences or not all(verdict.ok for verdict in verdicts):
        return Exit.FAILED
    if left_out is not None and not context.arguments.checks:
        raise Refused(
            f"all checks are OK, and nothing was compared with the files: {why_not}",
            hint=f"{left_out.hint} To have the checks alone, say --checks.",
        )
    return Exit.OK


def _directory(context: Context) -> tuple[Path | None, Refused | None]:
    """Give the directory of files that is compared with, or say why none is."""
    named = context.arguments.folder
    if context.arguments.checks:
        if named is not None:
            raise ConfigError(
                f"--checks compares nothing with files, and {named} is named",
                hint="Say one of the two.",
            )
        return None, Refused("--checks was said", hint="Leave it away.")
    try:
        origin = Origin.of(context.config.home)
        folder = chosen(named, origin)
        if not (folder / "Batch1").is_dir():
            raise Refused(f"{folder} has no Batch1", hint="Name the directory that was loaded.")
    except Refused as error:
        return None, error
    if origin is not None and not origin.is_like(folder):
        tell(f"warning: {origin.directory} was loaded, and not {folder}")
    return folder, None


def _print_json(
    verdicts: Sequence["Verdict"], differences: Sequence["Difference"] | None, why_not: str | None
) -> None:
    told = {
        "checks": [asdict(verdict) | {"ok": verdict.ok} for verdict in verdicts],
        "differences": None if differences is None else [asdict(each) for each in differences],
        "not_compared": why_not,
    }
    print(json.dumps(told, default=str))


def _print(
    verdicts: Sequence["Verdict"], differences: Sequence["Difference"] | None, why_not: str | None
) -> None:
    for verdict in verdicts:
        print(f"{verdict.name}: {verdict.wrong or 'OK'}")
    if differences is None:
        print(f"not compared with the files: {why_not}")
    else:
        for each in differences:
            print(each)
        other = f"other rows in {', '.join(each.table for each in differences)}"
        print(f"the oracle has {other if differences else 'the same rows'}")
    print(f"{sum(verdict.ok for verdict in verdicts)} of {len(verdicts)} checks are OK")


def _warn_of(last: int | None) -> None:
    """Say if a warehouse is not at the batch at which the audit is right."""
    if last is None:
        raise Refused(
            "nothing was loaded that could be audited",
            hint="Load a directory first: `headrace tpcdi load DIR`.",
        )
    if last > LAST_BATCH_OF_FILES:
        tell(
            f"warning: `stream` has gone on through batch {last}; checks and files end with "
            f"{LAST_BATCH_OF_FILES}, and what it brought counts as wrong"
        )
    elif last < LAST_BATCH_OF_FILES:
        tell(
            f"warning: only {last} of {LAST_BATCH_OF_FILES} batches were begun; "
            "`headrace tpcdi load DIR` goes on with the others"
        )
