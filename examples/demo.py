"""`make demo`: a live show's votes through Kafka, Spark and the core, one vote a batch.

Whoever has the fewest votes after every thousandth is removed, and gives the votes back: only in
the right order does everything come out as the rules say. Uses nothing but the command line, in a
data folder of its own, and stops what it starts. `examples/demo.py 2000` has fewer votes.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from bench.voter_show import CONTESTANTS, Show, Vote, votes

VOTES, BROKEN = 5_000, 20
ARRIVE_S = 60

HERE = Path(__file__).parent
HEADRACE = [sys.executable, "-m", "headrace.cli"]
REMOVED = "SELECT total, contestant, votes FROM removed ORDER BY total"
UNKNOWN, REPEATED, NO_JSON = "no such contestant", "this phone has voted already", "not JSON"


def main() -> int:
    """Run the demo; 0 only if everything comes out as the rules say."""
    count = int(asked(VOTES))
    # It pushes seldom, so that there is something to pull.
    return show(partial(run, count=count), HERE / "voter.py", "push.every_ms=60000")


def asked(usual: float) -> str:
    """Tell how much is asked for: more or less than usual, if the command line says so."""
    return sys.argv[1] if len(sys.argv) > 1 else str(usual)


def show(demo: "Callable[[Stack, Path], int]", flow: Path, *settings: str) -> int:
    """Run a demo on a stack of its own, and leave nothing behind."""
    try:
        with tempfile.TemporaryDirectory(prefix="headrace-demo-") as folder:
            stack = Stack(Path(folder) / "home", flow)
            with stack.up(*settings):
                return demo(stack, Path(folder))
    except KeyboardInterrupt:
        print("demo: interrupted; nothing is left running", file=sys.stderr)
        return 130
    except subprocess.CalledProcessError as error:
        print(f"demo: `headrace {error.cmd[len(HEADRACE)]}` failed", file=sys.stderr)
        return int(error.returncode)


def run(stack: "Stack", folder: Path, count: int) -> int:
    """Produce, wait, and show what came of it."""
    made, played = votes(count)
    some = list(lines(made))
    half = len(some) // 2
    say(f"{count:,} votes come in, one a batch through three procedures; {BROKEN} more are no JSON")
    for name, part in [("early", some[:half]), ("late", some[half:])]:
        file = folder / f"{name}.jsonl"
        file.write_bytes(b"".join(line + b"\n" for line in part))
        print(stack.run("produce", "votes", str(file), "--wait"))
        wait_for(lambda: stack.reached("arrived") > 0, "the engine's first push")

    say("who was removed: what the core has committed, in the warehouse or not")
    print(stack.run("query", REMOVED, "--freshness", "staged"))
    say("how far the warehouse is: the engine pushes once in a minute here")
    print(stack.run("warehouse", "status"))
    say(
        "what a pull would do; and the pull, twice under one id, as when a scheduler repeats itself"
    )
    print(stack.run("migrate", "plan"))
    pulls = [stack.migrate("pull", "--id", "demo-1") for _ in range(2)]
    for pull in pulls:
        print(f"{pull['id']}: {pull['state']}, {pull['rows']:,} rows, asked {pull['created_at']}")
    say("the merge of what has arrived; and the answer from the tables that it goes to")
    print(stack.run("migrate", "merge"))
    print(stack.run("query", REMOVED, "--freshness", "main"))
    say("who leads now: a call, which is a transaction beside the batches")
    print(stack.run("call", "voter.standing", "kind=top"))
    say("what was rejected, and why; and the first three of them")
    print(stack.run("dead-letters", "list", "-n", "3"))
    whole = adds_up(stack, played, pulls)
    tell_where_to_look()
    return 0 if whole else 1


def adds_up(stack: "Stack", show: Show, pulls: list[dict[str, Any]]) -> bool:
    """Compare what came of it with the rules, played in plain Python."""
    letters = [
        json.loads(line)["reason"]
        for line in stack.run("dead-letters", "list", "--json").splitlines()
    ]
    staged, arrived = stack.rows(REMOVED, "staged"), stack.rows(REMOVED, "main")
    gone = {contestant for _, contestant, _ in arrived}
    top = [row[1:] for row in show.state()["leaders"] if row[0] == "top"]
    called = json.loads(stack.run("call", "voter.standing", "kind=top", "--output", "json"))
    checks = {
        "the right ones were removed, once each": gone.isdisjoint(show.counts)
        and len(gone) == len(arrived) == CONTESTANTS - len(show.counts),
        "staged and main agree": staged == arrived,
        "two pulls under one id were one": pulls[0] == pulls[1] and pulls[0]["rows"] > 0,
        "an audit of the warehouse finds nothing": stack.migrate("audit")["state"] == "succeeded",
        "the right ones lead, with the right votes": [tuple(r.values()) for r in called] == top,
        "every other vote is a dead letter": len(letters) == show.rejected + BROKEN
        and set(letters) == {UNKNOWN, REPEATED, NO_JSON},
    }
    say("does it come out as the rules say?")
    for what, holds in checks.items():
        print(f"  {'yes' if holds else 'NO '}  {what}")
    return all(checks.values())


def tell_where_to_look() -> None:
    """Name the places to go on at."""
    say("where to look next")
    print("  examples/voter.py         the dataflow that ran")
    print("  docs/flows.md             how to write one")
    print("  README.md                 a tour, with a flow of your own")
    print("  .venv/bin/headrace up     the same stack, for you; Ctrl-C stops it")


def lines(made: list[Vote]) -> Iterator[bytes]:
    """Write the votes as they come, and now and then one that is broken off."""
    every = len(made) // BROKEN
    for number, (phone, contestant) in enumerate(made):
        line = json.dumps({"phone": phone, "contestant": contestant}).encode()
        yield line
        if number % every == 0:
            yield line[:20]


class Stack:
    """The local stack, used by its command line."""

    def __init__(self, home: Path, flow: Path) -> None:
        self.shared = ["--home", str(home), "--flow", str(flow)]

    @contextmanager
    def up(self, *settings: str) -> Iterator[None]:
        """Start the stack, and stop it whatever happens."""
        say("broker, PostgreSQL, engine and API start")
        changes = [word for setting in settings for word in ("--set", setting)]
        command = [*HEADRACE, "up", "--detach", *self.shared, *changes]
        starting = subprocess.Popen(command)
        try:
            if starting.wait():
                raise subprocess.CalledProcessError(starting.returncode, command)
            yield
        finally:
            starting.wait()  # interrupted, it stops by itself what it has started
            say("all of it stops, and its data is deleted")
            subprocess.run([*HEADRACE, "down", *self.shared], check=True)

    def run(self, *arguments: str) -> str:
        """Run one command and return what it printed."""
        done = subprocess.run(
            [*HEADRACE, *arguments, *self.shared], check=True, text=True, stdout=subprocess.PIPE
        )
        return done.stdout.strip()

    def rows(self, sql: str, freshness: str) -> list[list[Any]]:
        """Ask a query and return the rows."""
        answer = json.loads(self.run("query", sql, "--freshness", freshness, "--json"))
        return list(answer["rows"])

    def migrate(self, *arguments: str) -> dict[str, Any]:
        """Have something moved, and give how that ended."""
        return dict(json.loads(self.run("migrate", *arguments, "--json")))

    def reached(self, what: str) -> int:
        """Tell to which batch the warehouse has come."""
        ((place,),) = [json.loads(self.run("warehouse", "status", "--json"))]
        return int(place["dataflows"][0][what] or 0)


def wait_for(condition: Callable[[], bool], what: str) -> None:
    """Return when the condition holds."""
    deadline = time.monotonic() + ARRIVE_S
    while not condition():
        if time.monotonic() > deadline:
            sys.exit(f"demo: waited {ARRIVE_S} s for {what}; see `headrace logs`")
        time.sleep(0.2)


def say(what: str) -> None:
    """Print a heading."""
    print(f"\n== {what}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
