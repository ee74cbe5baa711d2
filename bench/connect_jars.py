"""The jars of Kafka Connect and of Debezium's JDBC sink, which has PostgreSQL's driver: fetched
once, through Ivy, and pinned.

    python -m bench.connect_jars

pins what `connect.xml` brings today.
"""

import hashlib
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench import killing
from headrace import config
from headrace.errors import Missing
from headrace.local import jars

WANTED = Path(__file__).parent / "connect.xml"
PINS = Path(__file__).parent / "connect.sha256"


def classpath() -> str:
    """Give the class path."""
    return str(_there() / "*")


def driver() -> Path:
    """Give PostgreSQL's JDBC driver."""
    (found,) = _there().glob("postgresql-*.jar")
    return found


def pin() -> None:
    """Write the list of digests anew."""
    with _fetched() as found:
        PINS.write_text(_digests(found), encoding="ascii")


def _there() -> Path:
    """Give the folder of the jars; fetch them if that was not done before."""
    kept = _kept()
    if not kept.is_dir():
        with _fetched() as found:
            _check(found)
            if not kept.is_dir():  # another process may have been quicker
                found.rename(kept)
    _check(kept)
    return kept


def _kept() -> Path:
    kept = config.load({}, environment=config.child_environment({})).config.jars
    return kept / f"connect-{hashlib.sha256(PINS.read_bytes()).hexdigest()[:12]}"


@contextmanager
def _fetched() -> Iterator[Path]:
    beside = _kept().parent
    beside.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=beside) as work:
        found = Path(work) / "found"
        into = f"{found}/[artifact]-[revision].[ext]"
        if not killing.ends_well(jars.ivy_command(Path(work), WANTED, "connect", into=into)):
            raise Missing("the jars of a peer were not fetched", hint="Run it again, online.")
        yield found


def _check(found: Path) -> None:
    if _digests(found) != PINS.read_text(encoding="ascii"):
        raise Missing(f"the jars in {found} are not the pinned ones", hint="Delete it; run again.")


def _digests(found: Path) -> str:
    there = sorted(found.iterdir())
    return "".join(f"{hashlib.sha256(j.read_bytes()).hexdigest()}  {j.name}\n" for j in there)


if __name__ == "__main__":
    pin()
