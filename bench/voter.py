"""S-Store's leaderboard, one vote a batch: our dataflow, a bare SQLite loop, PostgreSQL, a client.

Everybody takes the same votes, and each trial's final state is compared with that of the rules.
"""

import sqlite3
from functools import partial
from pathlib import Path

from bench import postgres, voter_calls, voter_sql
from bench.bare import GROUP_BATCHES
from bench.harness import Figures, Result, Setup, Times, Trial, in_turns, timed
from bench.ours import GROUP_MS, Ours, arrivals
from bench.voter_bare import BareVoter
from bench.voter_postgres import PIPELINED, WAITING, PostgresVoter
from bench.voter_show import (
    CONTESTANTS,
    FOR_NOBODY,
    FROM_A_KNOWN_PHONE,
    SEED,
    SKEW,
    State,
    Vote,
    votes,
)
from etl_procs import loader
from etl_procs.dataflow import Dataflow

EXAMPLE = Path(__file__).parent.parent / "examples" / "voter.py"

OUR_STATE = {**voter_sql.STATE, "recent": "SELECT phone, contestant FROM recent ORDER BY rowid"}

STRONG, WEAK, CLIENT = "strong", "weak", "client_driven"
BARE = {
    "bare": ("strong", GROUP_BATCHES),
    "bare_weak": ("weak", GROUP_BATCHES),
    "bare_commit_each": ("strong", 1),
    "bare_weak_commit_each": ("weak", 1),
}
POSTGRES = {voter.name: voter for voter in (*WAITING, *PIPELINED)}


def run(setup: Setup) -> Result:
    """Let everybody count, in turns."""
    made, show = votes(setup.size(full=20_000, quick=3_000))
    with postgres.server(setup.folder) as conninfo:
        # PostgreSQL is so much slower that a quick run has time for one round of it.
        once = list(POSTGRES) if setup.quick else []
        times = in_turns(trials(made, show.state(), conninfo), setup, once)
    return Result(
        figures={
            "strong_batches_per_s": times.rate(STRONG, len(made)),
            "weak_batches_per_s": times.rate(WEAK, len(made)),
            "strong_us_per_batch": times.us(STRONG, len(made)),
            "weak_us_per_batch": times.us(WEAK, len(made)),
        },
        peers={name: _peer(times, name, len(made)) for name in (*BARE, CLIENT, *POSTGRES)},
        ratios=ratios(times),
        settings={
            "votes": len(made),
            "votes_rejected": show.rejected,
            "rounds": setup.rounds,
            "rounds_of_postgres": len(times.seconds[next(iter(POSTGRES))]),
            "contestants": CONTESTANTS,
            "contestants_removed": CONTESTANTS - len(show.counts),
            "votes_from_a_known_phone": FROM_A_KNOWN_PHONE,
            "votes_for_nobody": FOR_NOBODY,
            "skew": SKEW,
            "seed": SEED,
            "group_batches": GROUP_BATCHES,
            "group_ms_max": GROUP_MS,
            "dead_letters": "ours keeps what is rejected, the peers only count it",
        },
    )


def trials(made: list[Vote], expected: State, conninfo: str | None = None) -> dict[str, Trial]:
    """Everybody who counts; PostgreSQL only if there is one."""
    flow = loader.load([EXAMPLE])["voter"]
    found: dict[str, Trial] = {}
    for durability in (STRONG, WEAK):
        found[durability] = partial(_ours, made, expected, flow, durability)
        for name, (same, group) in BARE.items():
            if same == durability:
                found[name] = partial(_bare, made, expected, durability, group)
    found[CLIENT] = partial(_client_driven, made, expected)
    if conninfo is not None:
        for name, voter in POSTGRES.items():
            found[name] = partial(_postgres, made, expected, voter, conninfo)
    return found


def ratios(times: Times) -> dict[str, list[float]]:
    """How many times as fast as each peer we were, round by round."""
    best = {
        "strong_to_postgres": times.fastest(voter.name for voter in WAITING),
        "strong_to_postgres_pipelined": times.fastest(voter.name for voter in PIPELINED),
        "strong_to_client_driven": CLIENT,
        "strong_to_weak": WEAK,
        "strong_to_bare": "bare",
        "strong_to_bare_commit_each": "bare_commit_each",
    }
    found = {name: times.ratios(STRONG, peer) for name, peer in best.items()}
    found["weak_to_bare"] = times.ratios(WEAK, "bare_weak")
    found["weak_to_bare_commit_each"] = times.ratios(WEAK, "bare_weak_commit_each")
    return found


def _peer(times: Times, name: str, count: int) -> Figures:
    return {"batches_per_s": times.rate(name, count), "us_per_batch": times.us(name, count)}


def _ours(
    made: list[Vote], expected: State, flow: Dataflow, durability: str, folder: Path
) -> float:
    fed = arrivals(flow.streams["votes"], made)
    with Ours(folder, flow, durability) as ours:
        with timed() as seconds:
            ours.feed(fed)
        _compare(_read(ours.path, OUR_STATE), expected, "our dataflow")
    return seconds()


def _client_driven(made: list[Vote], expected: State, folder: Path) -> float:
    with Ours(folder, voter_calls.flow, STRONG) as ours:
        call = ours.caller()
        with timed() as seconds:
            for phone, contestant in made:
                vote = {"phone": phone, "contestant": contestant}
                (found,) = call("validate", vote)
                if found["good"]:
                    call("maintain", vote)
                    call("remove", {})
        _compare(_read(ours.path, voter_sql.STATE), expected, "the client-driven procedures")
    return seconds()


def _bare(made: list[Vote], expected: State, durability: str, group: int, folder: Path) -> float:
    voter = BareVoter(folder / "bare.sqlite", durability, group)
    with timed() as seconds:
        voter.run(made)
    _compare(voter.state(), expected, "the bare loop")
    voter.close()
    return seconds()


def _postgres(
    made: list[Vote],
    expected: State,
    voter_type: type[PostgresVoter],
    conninfo: str,
    _folder: Path,
) -> float:
    voter = voter_type(conninfo)
    with timed() as seconds:
        voter.run(made)
    _compare(voter.state(), expected, voter.name)
    voter.close()
    return seconds()


def _read(path: Path, queries: dict[str, str]) -> State:
    connection = sqlite3.connect(path)
    try:
        return {table: connection.execute(sql).fetchall() for table, sql in queries.items()}
    finally:
        connection.close()


def _compare(state: State, expected: State, who: str) -> None:
    for table, rows in expected.items():
        assert state[table] == rows, f"{who} ended with other rows in {table} than the rules"
