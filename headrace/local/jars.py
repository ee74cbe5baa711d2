"""The jars of the broker and of Spark's Kafka source: fetched once, pinned, verified.

`ivy.xml` says what is wanted, `jars.sha256` what it must be, byte for byte. They are fetched by
the Ivy that PySpark carries into `<jars>/<digest of the list>/{broker,spark}`, which appears
whole, by one rename, or not at all.
"""

import contextlib
import fcntl
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from headrace import config
from headrace.config import Config
from headrace.errors import HeadraceError, Missing
from headrace.local import java

HERE = Path(__file__).parent
IVY_FILE = HERE / "ivy.xml"
PINS_FILE = HERE / "jars.sha256"
BROKER, SPARK = "broker", "spark"
UNFINISHED = ".fetching-"
NAMED_MAX = 3  # in one message

FETCH = "Run `make setup` or `headrace jars` to fetch them."
Progress = Callable[[int, int], None]


def broker_classpath(configuration: Config) -> str:
    """Give the broker's class path; its jars are there and are the pinned ones."""
    return str(_verified(configuration, BROKER) / "*")


def spark_jars(configuration: Config) -> list[Path]:
    """List the jars that Spark needs to read from Kafka; they are the pinned ones."""
    return sorted(_verified(configuration, SPARK).iterdir())


def folder(configuration: Config) -> Path:
    """Say where the jars of this version of the list are kept."""
    return configuration.jars / hashlib.sha256(PINS_FILE.read_bytes()).hexdigest()[:12]


def pins() -> dict[str, str]:
    """Read the pinned list: conf/name -> SHA-256."""
    lines = (line.split() for line in PINS_FILE.read_text().splitlines())
    return {name: digest for digest, name in lines}


def is_whole(configuration: Config) -> bool:
    """Tell whether every pinned jar is there, and nothing else."""
    return not differences(folder(configuration), pins())


def fetch(configuration: Config, progress: Progress) -> None:
    """Fetch every jar, verify them, and put them where they are kept. Costs half a minute."""
    target = folder(configuration)
    with _alone(configuration.jars):
        if is_whole(configuration):  # another process has just done it
            return
        with _retrieved(configuration.jars, progress) as found:
            wrong = differences(found, pins())
            if wrong:
                raise HeadraceError(
                    f"the jars that were fetched are not the pinned ones: {_named(wrong)}",
                    hint="Nothing was kept. Run it again; if it stays so, the mirror in use serves "
                    f"something else than {PINS_FILE.name} names.",
                )
            shutil.rmtree(target, ignore_errors=True)
            found.rename(target)


def differences(found: Path, pinned: Mapping[str, str]) -> list[str]:
    """List the jars that are missing, changed or too many, each with what is wrong with it."""
    there = {
        str(path.relative_to(found)): path
        for conf in (BROKER, SPARK)
        for path in _files(found, conf)
    }
    wrong = [f"{name} is missing" for name in pinned if name not in there]
    for name, path in sorted(there.items()):
        if name not in pinned:
            wrong.append(f"{name} is not in the list")
        elif _digest(path) != pinned[name]:
            wrong.append(f"{name} is not the pinned one")
    return wrong


def _verified(configuration: Config, conf: str) -> Path:
    kept = folder(configuration)
    wrong = [line for line in differences(kept, pins()) if line.startswith(f"{conf}/")]
    if not (kept / conf).is_dir():
        raise Missing(f"the jars of {conf} are not in {kept}", hint=FETCH)
    if wrong:
        raise Missing(f"the jars of {conf} in {kept} are damaged: {_named(wrong)}", hint=FETCH)
    return kept / conf


def _files(found: Path, conf: str) -> list[Path]:
    return [path for path in (found / conf).glob("*") if path.is_file()]


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _named(wrong: list[str]) -> str:
    more = len(wrong) - NAMED_MAX
    return "; ".join(wrong[:NAMED_MAX]) + (f"; and {more} more" if more > 0 else "")


@contextlib.contextmanager
def _alone(kept: Path) -> Iterator[None]:
    """Let one process fetch at a time, and clear away what a killed one left."""
    try:
        kept.mkdir(parents=True, exist_ok=True)
        with contextlib.ExitStack() as stack:
            held = os.open(kept, os.O_RDONLY)
            stack.callback(os.close, held)
            fcntl.flock(held, fcntl.LOCK_EX)
            for left in kept.glob(UNFINISHED + "*"):
                shutil.rmtree(left, ignore_errors=True)
            yield
    except OSError as error:
        raise Missing(
            f"the jars could not be kept in {kept}: {error.strerror or error}",
            hint="They take 120 MB while they are fetched. Make room there, or let the "
            "configuration key `jars` name another folder, and run it again.",
        ) from error


@contextlib.contextmanager
def _retrieved(beside: Path, progress: Progress) -> Iterator[Path]:
    """Let Ivy retrieve into a temporary folder, on the same file system as the target."""
    with tempfile.TemporaryDirectory(prefix=UNFINISHED, dir=beside) as work:
        found = Path(work) / "found"
        _run_ivy(Path(work), found, progress)
        yield found


def _run_ivy(work: Path, found: Path, progress: Progress) -> None:
    environment = config.child_environment({})
    into = f"{found}/[conf]/[artifact]-[revision].[ext]"
    command = ivy_command(work, IVY_FILE, BROKER, SPARK, into=into)
    total = 2 * len(pins())  # each is found, and then downloaded
    said: list[str] = []
    with subprocess.Popen(
        command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as ivy:
        assert ivy.stdout is not None
        steps = 0
        for line in ivy.stdout:
            said.append(line.strip())
            if said[-1].startswith(("found ", "[SUCCESSFUL ]")):
                steps += 1
                progress(min(steps, total), total)
    if ivy.returncode != 0 or not found.is_dir():
        raise _failure(said)


def ivy_command(work: Path, wanted: Path, *confs: str, into: str) -> list[str]:
    """Write the command by which Ivy, with its cache in `work`, retrieves what a file wants."""
    return [
        str(java.find(config.child_environment({})).program),
        # Not the user's own ~/.ivy2, whatever stands in it.
        f"-Divy.default.ivy.user.dir={work}",
        *("-jar", str(_ivy()), "-ivy", str(wanted), "-cache", str(work / "cache")),
        *("-confs", *confs, "-m2compatible", "-retrieve", into),
    ]


def _ivy() -> Path:
    spark = importlib.util.find_spec("pyspark")
    places = list(spark.submodule_search_locations or []) if spark else []
    found = [jar for place in places for jar in Path(place).glob("jars/ivy-*.jar")]
    if not found:
        raise Missing("PySpark, whose Ivy fetches the jars, is not installed", hint="`make setup`")
    return found[0]


def _failure(said: list[str]) -> Missing:
    for line in said:
        if "No space left" in line:
            return Missing(
                f"the jars could not be fetched, the disk is full: {line}",
                hint="They take 120 MB while they are fetched. Free some and run it again.",
            )
    signs = ("Exception", "ERROR", "not found", "timed out", "Server access")
    causes = [line for line in said if any(sign in line for sign in signs)]
    cause = (causes or said or ["Ivy said nothing"])[0]
    return Missing(
        f"the jars could not be fetched: {cause[:200]}",
        hint="Check the network (behind a proxy: JAVA_TOOL_OPTIONS='-Dhttps.proxyHost=... "
        "-Dhttps.proxyPort=...') and run it again.",
    )


def pin(configuration: Config) -> None:
    """Write the pinned list anew from what `ivy.xml` brings today: what `make lock` does."""
    with _alone(configuration.jars), _retrieved(configuration.jars, lambda *_: None) as found:
        lines = [
            f"{_digest(path)}  {path.relative_to(found)}\n"
            for conf in (BROKER, SPARK)
            for path in sorted(_files(found, conf))
        ]
        PINS_FILE.write_text("".join(lines))


if __name__ == "__main__":
    try:
        pin(config.load().config)
    except HeadraceError as error:
        print(error, file=sys.stderr)  # noqa: T201 - the developer's own command
        sys.exit(error.exit)
