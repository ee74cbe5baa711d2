"""`headrace migrate`: what is moved into warehouses: planned, asked for, looked at, cancelled."""

import argparse
import json
import math
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode
from uuid import uuid4

from headrace import client
from headrace.cli import addresses
from headrace.cli.command import JSON, Action, Adds, Command, Context, argument
from headrace.cli.table import laid_out
from headrace.config import Config
from headrace.errors import ConfigError, Exit, HeadraceError, NotRunning, Refused
from migrations import ids

if TYPE_CHECKING:
    from migrations.warehouse import Warehouse

STATES = ("waiting", "running", "succeeded", "failed", "cancelled")
LINES, LINES_MAX = 20, 1_000
POLL_S = 0.2
AWAY_S = 30.0
"""So long an API that is started again is waited for."""
CANCELLED_S = 10.0
"""So long it is waited until what is cancelled has stopped."""
SAY_EVERY_S = 5.0
"""How often it is said how far it is, where no terminal shows it."""
HEAD = ("id", "kind", "warehouse", "state", "rows", "bytes", "created (UTC)", "stage")


def _show_one(context: Context) -> int:
    arguments = context.arguments
    return _show(_One(context.config, arguments.id).ask("GET"), as_json=arguments.json)


def _cancel(context: Context) -> int:
    """Cancel it, and wait a while until it has stopped."""
    arguments = context.arguments
    one = _One(context.config, arguments.id)
    one.ask("DELETE")
    return _show(one.wait(0.0 if arguments.no_wait else CANCELLED_S), as_json=arguments.json)


def _plan(context: Context) -> int:
    """Print what a push would do now."""
    # Here, because every other command would pay for importing Arrow.
    from etl_procs import loader
    from etl_procs.core import core_path
    from migrations.planning import planned

    config = context.config
    dataflows = loader.load(config.flows)
    for name in context.arguments.dataflow or ():
        if name not in dataflows:
            known = ", ".join(dataflows)
            raise Refused(f"there is no dataflow {name}", hint=f"There are: {known}.")
    wanted = [dataflows[name] for name in context.arguments.dataflow or dataflows]
    partitions = range(max(flow.partitions for flow in wanted))
    cores = [core_path(config.home, partition) for partition in partitions]

    def plan(place: "Warehouse") -> None:
        print(f"warehouse {place.name}")
        for found in planned(place, wanted, cores):
            if found.plan is None:
                print(f"there are no tables of {found.name} yet: warehouse init")
            else:
                print(str(found.plan) or f"nothing of {found.name}")

    addresses.at_each_warehouse(config, context.arguments.warehouse, plan)
    return Exit.OK


def _ask(context: Context) -> int:
    """Ask for a migration, and wait for its end."""
    arguments, config = context.arguments, context.config
    said = vars(arguments)
    asked: dict[str, Any] = {
        "kind": "pull" if arguments.action == "push" else arguments.action,
        "warehouse": said.get("warehouse") or "default",
        "dataflows": arguments.dataflow or None,
        "source": said.get("source", ""),
    }
    if said.get("idle_for") is not None:
        asked["idle"] = {"deadline_s": arguments.idle_for}
    one = _One(config, f"cli-{uuid4()}" if arguments.id is None else arguments.id)
    found = one.ask("PUT", asked)
    if not arguments.no_wait:
        found = one.wait()
    code = _show(found, as_json=arguments.json)
    if found["state"] == "cancelled":
        raise HeadraceError(
            f"the migration {one.id} was cancelled",
            hint="What it has committed stays; another one, under an id of its own, does the rest.",
        )
    return code


class _One:
    """A migration, as it is asked for."""

    def __init__(self, config: Config, id_: str) -> None:
        if not ids.is_one(id_):
            raise ConfigError(f"{id_!r} is no id of a migration", hint=f"An id has {ids.RULE}.")
        self.id = id_
        self._api = client.of(config)

    def ask(self, method: str, asked: object = None) -> dict[str, Any]:
        return dict(self._api.ask(method, f"/v1/migrations/{self.id}", asked))

    def wait(self, seconds: float = math.inf) -> dict[str, Any]:
        """Wait for its end, so long at most, and say meanwhile how far it is."""
        until, said, say_at = time.monotonic() + seconds, "", time.monotonic() + SAY_EVERY_S
        while (found := self._look())["ended_at"] is None and time.monotonic() < until:
            is_time = sys.stderr.isatty() or time.monotonic() > say_at
            if is_time and found["stage"] != said:
                said, say_at = found["stage"], time.monotonic() + SAY_EVERY_S
                print(f"{self.id}: {said}", file=sys.stderr)
            time.sleep(POLL_S)
        return found

    def _look(self) -> dict[str, Any]:
        """Look how it is; the API may just be started again."""
        until = time.monotonic() + AWAY_S
        while True:
            try:
                return self.ask("GET")
            except NotRunning as error:
                if time.monotonic() > until:
                    raise NotRunning(
                        error.what,
                        hint=f"The migration {self.id} goes on with the API: `headrace status` "
                        f"shows that one, `headrace migrate show {self.id}` the migration.",
                    ) from error
            time.sleep(POLL_S)


def _list(context: Context) -> int:
    arguments = context.arguments
    wanted = {"warehouse": arguments.warehouse, "state": arguments.state, "limit": arguments.lines}
    query = urlencode({name: value for name, value in wanted.items() if value})
    api = client.of(context.config)
    found = api.ask("GET", f"/v1/migrations?{query}")["migrations"]
    if arguments.warehouse and not found:
        known = [place["name"] for place in api.ask("GET", "/v1/warehouses")["warehouses"]]
        if arguments.warehouse not in known:
            raise Refused(
                f"there is no warehouse {arguments.warehouse!r}, and no migration of one",
                hint=f"There are: {', '.join(known)}.",
            )
    if arguments.json:
        print("\n".join(json.dumps(each) for each in found))
    elif found:
        print("\n".join(laid_out(HEAD, [_row(each) for each in found], right=[4, 5])))
    else:
        print("There is no such migration.")
    return Exit.OK


def _row(found: dict[str, Any]) -> tuple[object, ...]:
    names = ("id", "kind", "warehouse", "state", "rows", "bytes")
    return (*(found[name] for name in names), found["created_at"][:19], found["stage"])


def _show(found: dict[str, Any], *, as_json: bool) -> int:
    print(json.dumps(found) if as_json else "\n".join(_lines(found)))
    if found["error"]:
        raise HeadraceError(found["error"]["what"], hint=found["error"]["hint"])
    return Exit.OK


def _lines(found: dict[str, Any]) -> Iterator[str]:
    yield f"{found['kind']} {found['id']} ({found['warehouse']}): {found['state']}"
    if found["stage"]:
        yield f"  {found['stage']}"
    rows = "1 row" if found["rows"] == 1 else f"{found['rows']:,} rows"
    yield f"  {rows}, {found['bytes']:,} bytes"
    if found["reached"]:
        batches = ", ".join(f"{place} batch {batch}" for place, batch in found["reached"].items())
        yield f"  reached {batches}"
    yield from (f"  - {finding}" for finding in found["findings"])


def _seconds(text: str) -> float:
    if not text.replace(".", "", 1).isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds")
    return float(text)


def _lines_of(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= LINES_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 1 to {LINES_MAX:,}")
    return int(text)


ONE = argument("id", metavar="ID", help="the migration")
WAREHOUSE = argument("--warehouse", default="", metavar="NAME", help="which one")
DATAFLOW = argument("--dataflow", action="append", metavar="NAME", help="which; without: all")
NO_WAIT = argument("--no-wait", action="store_true", help="return when it is taken on")
IDLE = argument(
    "--idle-for",
    type=_seconds,
    metavar="SECONDS",
    help="wait until the warehouse is idle, but no longer than this",
)
ASKING: tuple[Adds, ...] = (
    argument("--id", metavar="ID", help=f"its id ({ids.RULE}): the same again is the same one"),
    DATAFLOW,
    NO_WAIT,
    JSON,
)

COMMANDS = [
    Command(
        name="migrate",
        summary="move what is staged into a warehouse now; plan, merge, audit, look",
        description="What is staged, and what has arrived, is moved by the API, under an id: the "
        "same again is the same migration. Only plan, which changes nothing, asks core and "
        "warehouses itself.",
        examples=(
            "headrace migrate plan",
            "headrace migrate pull --warehouse default --id nightly-2026-11-19 --idle-for 600",
            "headrace migrate merge",
            "headrace migrate list --state failed",
        ),
        actions=(
            Action("plan", "print what a push would do", _plan, (WAREHOUSE, DATAFLOW)),
            Action("pull", "bring in what the cores have staged", _ask, (*ASKING, WAREHOUSE, IDLE)),
            Action("push", "the same, at once", _ask, (*ASKING, WAREHOUSE, IDLE)),
            Action("merge", "merge deltas into main", _ask, (*ASKING, WAREHOUSE, IDLE)),
            Action("retention", "forget what all have had for long enough", _ask, ASKING),
            Action(
                "audit",
                "hold it against definition, ledger and cores",
                _ask,
                (*ASKING, WAREHOUSE, IDLE),
            ),
            Action(
                "rebuild",
                "replace its tables by those of another",
                _ask,
                (
                    *ASKING,
                    WAREHOUSE,
                    IDLE,
                    argument("--source", default="", metavar="NAME", help="from this warehouse"),
                ),
            ),
            Action(
                "list",
                "tell of migrations, the newest first",
                _list,
                (
                    WAREHOUSE,
                    argument("--state", choices=STATES, help="those in this state"),
                    argument(
                        "-n",
                        "--lines",
                        type=_lines_of,
                        default=LINES,
                        metavar="N",
                        help=f"so many ({LINES})",
                    ),
                    JSON,
                ),
            ),
            Action("show", "show one", _show_one, (ONE, JSON)),
            Action("cancel", "stop one, and wait until it has", _cancel, (ONE, NO_WAIT, JSON)),
        ),
    )
]
