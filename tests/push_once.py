"""A program that pushes once, for tests that kill it: push_once.py MODULE HOME URL CRASH_AT.

The module has the dataflow, as `flow`.
"""

import sys
from importlib import import_module
from pathlib import Path

from etl_procs.core import Core, core_path
from etl_procs.reader import Reader
from headrace import config
from headrace.clock import SystemClock
from headrace.crash import CrashPoints
from migrations import warehouse
from migrations.push import Push


def main(module: str, home: str, url: str, crash_at: str) -> None:
    flow, path, crash = import_module(module).flow, core_path(Path(home)), CrashPoints(crash_at)
    # Not prepared: the core stays in the hands of the test that started this.
    core = Core(path, settings=config.Core(), clock=SystemClock(), crash=crash)
    with warehouse.connect(url, application="test") as connection:
        Push(Reader(path), core.forget, crash, batches_max=1_000).run(connection, flow)


if __name__ == "__main__":
    main(*sys.argv[1:])
