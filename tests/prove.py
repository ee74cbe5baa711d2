"""`make prove`: the searches of the tests for longer, from a seed; slow tests; every broken build.

make prove            from a random seed, which is printed
make prove SEED=7     the same again
"""

import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fuzzing
import mutations
import sql_fuzzing
from alone import a_broker, a_postgres, data_folder
from conforming import answering, asked
from history import Done, Kind
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test
from library import new_database
from loading import files_of, load_and_kill, undisturbed
from restricting import asked_by_restricted
from storm import stormed
from test_core_crash import POINTS, dump, run
from test_equivalence import CATALOGUES, searched
from test_reference import CoreAndModel
from test_serializable import hammered
from totals import asked_amid_kills
from vectoring import VECTORS, a_spark

from api.plans import Plan
from headrace.config import Broker
from migrations import warehouse

EXAMPLES = 4_000
STEPS = 50
FUZZINGS, MUTANTS = 10, 10_000
HAMMERINGS = 3
BATCHES, KILLS, CLIENTS = 2_000, 40, 4
"""A hammering: so many batches and calls of so many clients, in spite of so many kills."""
STORM = {"collector": 16, "broker": 6, "jvm": 6, "worker": 6, "engine": 6}
"""So many kills of each, while tuples come."""
TOTALS = 12
"""So many rounds in each of which each part of a bank is killed."""
QUERIES = (80, 250)
"""So many divisions of rows, and so many random queries of each."""
RESTRICTED = (20, 15, 30)
"""So many divisions of rows, restrictions of each, and queries under each of them."""
SQL_FUZZED = 50_000
CONFORMING = 150
"""Requests for each operation, right ones and as many wrong ones."""
LOADS = (1, 1, 1, 2, 2, 4)
"""Loads of TPC-DI: so many kills in each of the phases."""


def search(number: int) -> str:
    """Drive core and model with random steps."""
    search = settings(
        max_examples=EXAMPLES,
        stateful_step_count=STEPS,
        deadline=None,
        database=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
        print_blob=True,
    )
    seeded: Any = seed(number)
    run_state_machine_as_test(seeded(CoreAndModel), settings=search)
    return f"{EXAMPLES} random dataflows, of up to {STEPS} random steps each"


def crash(home: Path) -> str:
    """Kill the core at every point, every time."""
    run(home / "calm")
    calm, kills = dump(home / "calm"), Counter[str]()
    for point in POINTS:
        kills[point.value] = run(home / point.value, point.value, "1")
        for nth in range(1, kills[point.value] + 1):
            assert dump(home / point.value / str(nth)) == calm, f"{point.value}:{nth}"
    assert all(kills.values()), kills
    told = ", ".join(f"{point} {times}" for point, times in kills.items())
    return f"{kills.total()} kills ({told})"


def hammer(home: Path, number: int) -> str:
    """Check histories of killed processes."""
    done: list[Done] = []
    for nth in range(HAMMERINGS):
        folder = home / str(nth)
        folder.mkdir()
        done += hammered(
            folder, clients=CLIENTS, batches=BATCHES, kills=KILLS, seed=number * HAMMERINGS + nth
        )
    kinds = Counter(one.kind for one in done if one.committed)
    return (
        f"{HAMMERINGS} histories with {KILLS} kills each: {kinds[Kind.BATCH]} executions and "
        f"{kinds[Kind.CALL]} calls, no anomaly"
    )


def storm(home: Path, number: int) -> str:
    """Kill all that carries tuples, while they come."""
    folder = home / "storm"
    with (
        a_postgres(data_folder(folder / "postgres")) as server,
        a_broker(data_folder(folder / "kafka")) as broker,
    ):
        return stormed(folder, broker, server.url, kills=STORM, seed=number)


def totals(home: Path, number: int) -> str:
    """Ask for totals at every freshness and by every plan while each part of a bank is killed."""
    home.mkdir()
    with a_postgres(data_folder(home / "postgres")) as server:
        return asked_amid_kills(home, new_database(server.url), rounds=TOTALS, seed=number)


def loads(home: Path, number: int) -> str:
    """Kill parts of the stack, and the loader, in each phase of loads of TPC-DI."""
    home.mkdir()
    files = files_of(home)
    wanted, killed, answers = undisturbed(files), Counter[str](), 0
    for nth, kills in enumerate(LOADS):
        folder = home / str(nth)
        folder.mkdir()
        course = load_and_kill(folder, files, wanted, number * len(LOADS) + nth, kills)
        killed.update(moment.victim for moment in course.killed)
        killed.update(course.inquirer.killed)
        answers += course.inquirer.answers.total()
    told = ", ".join(f"{victim} {times}" for victim, times in killed.items())
    return (
        f"{len(LOADS)} loads of TPC-DI with {killed.total()} kills ({told}), all as undisturbed; "
        f"{answers} answers of the island meanwhile, none wrong"
    )


def queries(home: Path, number: int) -> str:
    """Ask random queries of rows that are divided at random, by each plan."""
    home.mkdir()
    asked = Counter[Plan]()
    with a_postgres(data_folder(home / "postgres")) as server:
        for nth in range(QUERIES[0]):
            core = home / str(nth)
            core.mkdir()
            seed = number * QUERIES[0] + nth
            catalogue = list(CATALOGUES)[nth % len(CATALOGUES)]
            url = new_database(server.url)
            asked.update(searched(core, url, seed, QUERIES[1], catalogue))
    told = ", ".join(f"{plan.value} {times}" for plan, times in asked.items())
    return f"{asked.total()} random queries ({told}), all answered as by PostgreSQL"


def restrictions(home: Path, number: int) -> str:
    """Ask random queries with keys that see random tables, columns and rows."""
    home.mkdir()
    found = Counter[str]()
    divisions, rounds, count = RESTRICTED
    with a_postgres(data_folder(home / "postgres")) as server:
        for nth in range(divisions):
            core = home / str(nth)
            core.mkdir()
            seed = number * divisions + nth
            found += asked_by_restricted(core, new_database(server.url), seed, rounds, count)
    told = ", ".join(f"{how} {times}" for how, times in found.items())
    return f"{found.total()} random queries ({told}), and nothing hidden was told"


def hostile(home: Path, number: int) -> str:
    """Ask what is made of good and of hostile queries."""
    home.mkdir()
    with (
        a_postgres(data_folder(home / "postgres")) as server,
        warehouse.connect(new_database(server.url), application="prove") as connection,
    ):
        sql_fuzzing.prepare(connection)
        found = sql_fuzzing.fuzzed(connection, number, SQL_FUZZED)
    told = ", ".join(f"{how} {times}" for how, times in found.items())
    return f"{SQL_FUZZED} mutated queries ({told}), and nothing else was read"


def conformance(home: Path, number: int) -> str:
    """Ask the API what its document allows, and what it does not."""
    home.mkdir()
    with (
        a_postgres(data_folder(home / "postgres")) as server,
        a_broker(data_folder(home / "broker")) as broker,
        answering(
            home, new_database(server.url), lambda: Broker(bootstrap=broker.address)
        ) as client,
    ):
        wrong = asked(client, examples=CONFORMING, number=number).wrong
    assert not wrong, wrong
    return f"{CONFORMING} requests for each operation, all answered as OpenAPI tells"


def slow_tests() -> str:
    """Run the tests that `make test` leaves out."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-m", "slow", "-p", "no:cacheprovider"]
    ran = subprocess.run(command, cwd=mutations.ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout.splitlines()[-1]


def decoders(home: Path, number: int) -> str:
    """Decode what no producer should send."""
    home.mkdir()
    with a_spark(home) as spark:
        tuples = sum(fuzzing.rounds(spark, number, FUZZINGS, MUTANTS))
    return (
        f"{FUZZINGS * MUTANTS} mutants of each of {len(VECTORS)} files of vectors, of which "
        f"{tuples} entries are tuples"
    )


def main() -> None:
    number = int("".join(sys.argv[1:])) if sys.argv[1:] else random.SystemRandom().randrange(2**31)
    print(f"SEED={number}", flush=True)
    with tempfile.TemporaryDirectory() as home:
        proofs: dict[str, Callable[[], str]] = {
            "model": lambda: search(number),
            "crash points": lambda: crash(Path(home) / "crash"),
            "decoders": lambda: decoders(Path(home) / "decoders", number),
            "histories": lambda: hammer(Path(home), number),
            "storm": lambda: storm(Path(home), number),
            "totals": lambda: totals(Path(home) / "totals", number),
            "loads": lambda: loads(Path(home) / "loads", number),
            "queries": lambda: queries(Path(home) / "queries", number),
            "restrictions": lambda: restrictions(Path(home) / "restrictions", number),
            "hostile SQL": lambda: hostile(Path(home) / "hostile", number),
            "conformance": lambda: conformance(Path(home) / "conformance", number),
            "slow tests": slow_tests,
        }
        for name, prove in proofs.items():
            began = time.monotonic()
            print(f"{name}: {prove()}; {time.monotonic() - began:.0f} s", flush=True)
    print("\nwhat was broken, and what caught it", flush=True)
    mutations.main()


if __name__ == "__main__":
    main()
