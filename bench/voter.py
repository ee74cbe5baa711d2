"""S-Store's leaderboard, one vote a batch: our dataflow, a bare SQLite loop, PostgreSQL, a client.

Everybody takes the same votes, and each trial's final state is compared with that of the rules.
"""

import sqlite3
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import NamedTuple

from bench import bare, postgres, voter_calls, voter_sql
from bench.bare import GROUP_BATCHES
from bench.harness import Result, Setup, Times, Trial, in_turns, timed
from bench.ours import GROUP_MS, Ours, fed
from bench.voter_bare import BareVoter, Protect
from bench.voter_postgres import PIPELINED, WAITING, PostgresVoter
from bench.voter_show import (
    CONTESTANTS,
    FOR_NOBODY,
    FROM_A_KNOWN_PHONE,
    SEED,
    SKEW,
    Show,
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
    "bare": ("strong", GROUP_BATCHES, bare.savepoint),
    "bare_weak": ("weak", GROUP_BATCHES, bare.savepoint),
    "bare_unprotected": ("strong", GROUP_BATCHES, bare.unprotected),
    "bare_commit_each": ("strong", 1, bare.savepoint),
    "bare_weak_commit_each": ("weak", 1, bare.savepoint),
}
POSTGRES = {voter.name: voter for voter in (*WAITING, *PIPELINED)}
SLOW = (CLIENT, *POSTGRES)


class Play(NamedTuple):
    """Votes, and where they lead."""

    votes: list[Vote]
    show: Show


def play(count: int) -> Play:
    """Make the first `count` votes."""
    return Play(*votes(count))


def run(setup: Setup) -> Result:
    """Let everybody count, in turns."""
    all_of_it = play(setup.size(full=20_000, quick=3_000))
    part = play(setup.size(full=20_000, quick=600))
    with postgres.server(setup.folder) as conninfo:
        times = in_turns(trials(all_of_it) | slow_trials(part, conninfo), setup)
    counts = {name: len(part.votes if name in SLOW else all_of_it.votes) for name in times.seconds}
    each = times.per(counts)
    return Result(
        figures={
            "strong_batches_per_s": each.rate(STRONG),
            "weak_batches_per_s": each.rate(WEAK),
            "strong_us_per_batch": each.us(STRONG),
            "weak_us_per_batch": each.us(WEAK),
        },
        peers={
            name: {"batches_per_s": each.rate(name), "us_per_batch": each.us(name)}
            for name in (*BARE, *SLOW)
        },
        ratios=ratios(each),
        settings={
            "votes": len(all_of_it.votes),
            "votes_rejected": all_of_it.show.rejected,
            "votes_of_slow_peers": len(part.votes),
            "slow_peers": list(SLOW),
            "rounds": len(times.seconds[STRONG]),
            "contestants": CONTESTANTS,
            "contestants_removed": CONTESTANTS - len(all_of_it.show.counts),
            "votes_from_a_known_phone": FROM_A_KNOWN_PHONE,
            "votes_for_nobody": FOR_NOBODY,
            "skew": SKEW,
            "seed": SEED,
            "group_batches": GROUP_BATCHES,
            "group_ms_max": GROUP_MS,
            "savepoints": "the bare loop has one for each procedure, ours where something fails",
            "dead_letters": "ours keeps what is rejected, the peers only count it",
        },
    )


def trials(played: Play) -> dict[str, Trial]:
    """Everybody who counts in this process."""
    flow = loader.load([EXAMPLE])["voter"]
    found: dict[str, Trial] = {}
    for durability in (STRONG, WEAK):
        found[durability] = partial(_ours, played, flow, durability)
        for name, (same, group, protect) in BARE.items():
            if same == durability:
                found[name] = partial(_bare, played, durability, group, protect)
    return found


def slow_trials(played: Play, conninfo: str) -> dict[str, Trial]:
    """Those who wait for a commit at every step: a quick run has time for the first votes only."""
    found: dict[str, Trial] = {CLIENT: partial(_client_driven, played)}
    for name, voter in POSTGRES.items():
        found[name] = partial(_postgres, played, voter, conninfo)
    return found


def ratios(times: Times) -> dict[str, list[float]]:
    """How many times as fast as each peer we were, round by round."""
    best = {
        "strong_to_postgres": times.fastest(voter.name for voter in WAITING),
        "strong_to_postgres_pipelined": times.fastest(voter.name for voter in PIPELINED),
        "strong_to_client_driven": CLIENT,
        "strong_to_weak": WEAK,
        "strong_to_bare": "bare",
        "strong_to_bare_unprotected": "bare_unprotected",
        "strong_to_bare_commit_each": "bare_commit_each",
    }
    found = {name: times.ratios(STRONG, peer) for name, peer in best.items()}
    found |= {f"strong_to_{name}": times.ratios(STRONG, name) for name in POSTGRES}
    found["weak_to_bare"] = times.ratios(WEAK, "bare_weak")
    found["weak_to_bare_commit_each"] = times.ratios(WEAK, "bare_weak_commit_each")
    return found


def _ours(played: Play, flow: Dataflow, durability: str, folder: Path) -> float:
    def check(connection: sqlite3.Connection) -> None:
        state = {table: connection.execute(sql).fetchall() for table, sql in OUR_STATE.items()}
        _compare(state, played.show.state(), "our dataflow")

    return fed(folder, flow, played.votes, check, durability)


def _client_driven(played: Play, folder: Path) -> float:
    with Ours(folder, voter_calls.flow, STRONG) as ours:
        call = ours.caller()
        with timed() as seconds:
            for phone, contestant in played.votes:
                vote = {"phone": phone, "contestant": contestant}
                (found,) = call("validate", vote)
                if found["good"]:
                    call("maintain", vote)
                    call("remove", {})
        with closing(sqlite3.connect(ours.path)) as connection:
            state = {t: connection.execute(sql).fetchall() for t, sql in voter_sql.STATE.items()}
        _compare(state, played.show.state(), "the client-driven procedures")
    return seconds()


def _bare(played: Play, durability: str, group: int, protect: Protect, folder: Path) -> float:
    voter = BareVoter(folder / "bare.sqlite", durability, group, protect)
    with timed() as seconds:
        voter.run(played.votes)
    _compare(voter.state(), played.show.state(), "the bare loop")
    voter.close()
    return seconds()


def _postgres(
    played: Play,
    voter_type: type[PostgresVoter],
    conninfo: str,
    _folder: Path,
) -> float:
    voter = voter_type(conninfo)
    with timed() as seconds:
        voter.run(played.votes)
    _compare(voter.state(), played.show.state(), voter.name)
    voter.close()
    return seconds()


def _compare(state: State, expected: State, who: str) -> None:
    for table, rows in expected.items():
        assert state[table] == rows, f"{who} ended with other rows in {table} than the rules"
