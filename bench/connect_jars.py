"""The jars of Kafka Connect and of Debezium's JDBC sink: fetched once, through Ivy, and pinned.

    python -m bench.connect_jars

pins what `connect.xml` brings today.
"""

import hashlib
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench import ivy
from headrace import config
from headrace.errors import Missing

WANTED = Path(__file__).parent / "connect.xml"
PINS = Path(__file__).parent / "connect.sha256"


def are_there() -> bool:
    """Tell whether they were fetched before."""
    return _kept().is_dir()


def classpath() -> str:
    """Give the class path; fetch what is on it if that was not done before."""
    kept = _kept()
    if not kept.is_dir():
        with _fetched() as found:
            _check(found)
            found.rename(kept)
    _check(kept)
    return str(kept / "*")


def pin() -> None:
    """Write the list of digests anew."""
    with _fetched() as found:
        PINS.write_text(_digests(found), encoding="ascii")


def _kept() -> Path:
    jars = config.load({}, environment=config.child_environment({})).config.jars
    return jars / f"connect-{hashlib.sha256(PINS.read_bytes()).hexdigest()[:12]}"


@contextmanager
def _fetched() -> Iterator[Path]:
    beside = _kept().parent
    beside.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=beside) as work:
        found = Path(work) / "found"
        into = f"{found}/[artifact]-[revision].[ext]"
        ivy.retrieve(Path(work), "-ivy", WANTED, "-confs", "connect", "-retrieve", into)
        yield found


def _check(found: Path) -> None:
    if _digests(found) != PINS.read_text(encoding="ascii"):
        raise Missing(f"the jars in {found} are not the pinned ones", hint="Delete it; run again.")


def _digests(found: Path) -> str:
    jars = sorted(found.iterdir())
    return "".join(f"{hashlib.sha256(j.read_bytes()).hexdigest()}  {j.name}\n" for j in jars)


if __name__ == "__main__":
    pin()
