"""What a core has staged, into PostgreSQL: ours beside COPY, SQL by hand, and who does it today.

A push is compared with COPY, a merge with SQL by hand, reads of live with those of main, a push
into a big main with one into a small one; and all of it with who moves changes in other ways.
"""

from dataclasses import replace

from bench import (
    migrate_growth,
    migrate_live,
    migrate_merging,
    migrate_peers,
    migrate_push,
    postgres,
)
from bench.harness import Result, Setup

PARTS = (
    migrate_push.run,
    migrate_growth.run,
    migrate_merging.run,
    migrate_live.run,
    migrate_peers.run,
)
"""In this order: live is read where the merges began."""

QUICK_ROUNDS = 2


def run(setup: Setup) -> Result:
    """Run each part on one server."""
    if setup.quick:
        setup = replace(setup, rounds=min(setup.rounds, QUICK_ROUNDS))
    whole = Result({}, {}, {}, {})
    with postgres.server(setup.folder) as conninfo:
        for part in PARTS:
            whole = _together(whole, part(setup, conninfo))
    return whole


def _together(one: Result, other: Result) -> Result:
    return Result(
        {**one.figures, **other.figures},
        {**one.peers, **other.peers},
        {**one.ratios, **other.ratios},
        {**one.settings, **other.settings},
    )
