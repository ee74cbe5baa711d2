"""The jars of peers: fetched once, through Ivy, and pinned.

    python -m bench.peer_jars

pins what `peers.xml` brings today.
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

HERE = Path(__file__).parent
WANTED = HERE / "peers.xml"
CONNECT, MODULES = "connect", "modules"


def connect() -> str:
    """Give the class path of Kafka Connect."""
    return str(_there(CONNECT) / "*")


def driver() -> Path:
    """Give PostgreSQL's JDBC driver."""
    (found,) = _there(CONNECT).glob("postgresql-*.jar")
    return found


def modules() -> Path:
    """Give the jar that holds a PostgreSQL with all modules of its own."""
    (found,) = _there(MODULES).iterdir()
    return found


def pin() -> None:
    """Write the lists of digests anew."""
    for conf in (CONNECT, MODULES):
        with _fetched(conf) as found:
            _pins(conf).write_text(_digests(found), encoding="ascii")


def _there(conf: str) -> Path:
    """Give the folder of jars; fetch them if that was not done before."""
    kept = _kept(conf)
    if not kept.is_dir():
        with _fetched(conf) as found:
            _check(conf, found)
            if not kept.is_dir():  # another process may have been quicker
                found.rename(kept)
    _check(conf, kept)
    return kept


def _kept(conf: str) -> Path:
    kept = config.load({}, environment=config.child_environment({})).config.jars
    return kept / f"{conf}-{hashlib.sha256(_pins(conf).read_bytes()).hexdigest()[:12]}"


def _pins(conf: str) -> Path:
    return HERE / f"{conf}.sha256"


@contextmanager
def _fetched(conf: str) -> Iterator[Path]:
    beside = config.load({}, environment=config.child_environment({})).config.jars
    beside.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=beside) as work:
        found = Path(work) / "found"
        into = f"{found}/[artifact]-[revision].[ext]"
        if not killing.ends_well(jars.ivy_command(Path(work), WANTED, conf, into=into)):
            raise Missing("the jars of a peer were not fetched", hint="Run it again, online.")
        yield found


def _check(conf: str, found: Path) -> None:
    if _digests(found) != _pins(conf).read_text(encoding="ascii"):
        raise Missing(f"the jars in {found} are not the pinned ones", hint="Delete it; run again.")


def _digests(found: Path) -> str:
    there = sorted(found.iterdir())
    return "".join(f"{hashlib.sha256(j.read_bytes()).hexdigest()}  {j.name}\n" for j in there)


if __name__ == "__main__":
    pin()
