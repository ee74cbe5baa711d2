"""A program that pushes once, for tests that kill it: push_once.py MODULE HOME URL CRASH_AT.

The module has the dataflow, as `flow`.
"""

import sys
from importlib import import_module
from pathlib import Path

from etl_procs.core import core_path
from etl_procs.origin import Origin
from headrace import config
from headrace.crash import CrashPoints
from migrations import warehouse
from migrations.push import Push
from migrations.warehouse import DEFAULT, Warehouse


def main(module: str, home: str, url: str, crash_at: str) -> None:
    flow, path, crash = import_module(module).flow, core_path(Path(home)), CrashPoints(crash_at)
    origin = Origin(path, config.Core(), crash)
    with warehouse.connect(url, application="test") as connection:
        Push(0, Warehouse(DEFAULT, url), origin, crash, batches_max=1_000).run(connection, flow)


if __name__ == "__main__":
    main(*sys.argv[1:])
