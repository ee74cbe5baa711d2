"""`make demo`: a live show's votes through Kafka, Spark and the core, one vote a batch.

Whoever has the fewest votes after every thousandth is removed, and gives the votes back: only in
the right order does everything come out as the rules say. Uses nothing but the command line, in a
data folder of its own, and stops what it starts.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
    try:
        with tempfile.TemporaryDirectory(prefix="headrace-demo-") as folder:
            stack = Stack(Path(folder) / "home")
            with stack.up():
                return run(stack, Path(folder))
    except KeyboardInterrupt:
        print("demo: interrupted; nothing is left running", file=sys.stderr)
        return 130
    except subprocess.CalledProcessError as error:
        print(f"demo: `headrace {error.cmd[len(HEADRACE)]}` failed", file=sys.stderr)
        return int(error.returncode)


def run(stack: "Stack", folder: Path) -> int:
    """Produce, wait, and show what came of it."""
    made, show = votes(VOTES)
    file = folder / "votes.jsonl"
    file.write_bytes(b"".join(line + b"\n" for line in lines(made)))
    say(f"{VOTES:,} votes come in, one a batch through three procedures; {BROKEN} more are no JSON")
    print(stack.run("produce", "votes", str(file), "--wait"))

    removed = CONTESTANTS - len(show.counts)
    say("who was removed: what the core has committed, in the warehouse or not")
    print(stack.run("query", REMOVED, "--freshness", "staged"))
    wait_for(lambda: stack.count("delta") == removed, "the push to bring everybody who was removed")
    say("the same, of what has arrived in the warehouse")
    print(stack.run("query", REMOVED, "--freshness", "main"))
    say("who leads now: a call, which is a transaction beside the batches")
    print(stack.run("call", "voter.standing", "kind=top"))
    say("what was rejected, and why; and the first three of them")
    print(stack.run("dead-letters", "list", "-n", "3"))
    whole = adds_up(stack, show)
    tell_where_to_look()
    return 0 if whole else 1


def adds_up(stack: "Stack", show: Show) -> bool:
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

    def __init__(self, home: Path) -> None:
        self.shared = ["--home", str(home), "--flow", str(HERE / "voter.py")]

    @contextmanager
    def up(self) -> Iterator[None]:
        """Start the stack, and stop it whatever happens."""
        say("broker, PostgreSQL, engine and API start")
        command = [*HEADRACE, "up", "--detach", *self.shared, "--set", "push.every_ms=2000"]
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

    def count(self, freshness: str) -> object:
        """Count who was removed."""
        return self.rows("SELECT count(*) FROM removed", freshness)[0][0]


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
