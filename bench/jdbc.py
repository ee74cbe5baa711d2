"""PostgreSQL's JDBC driver, which one peer needs: fetched once, through Ivy, and pinned."""

import hashlib
import tempfile
from pathlib import Path

from bench import ivy
from headrace import config
from headrace.errors import Missing

VERSION = "42.7.8"
SHA256 = "2a32a9dcbc42d67a50ad3a0de5efd102c8d2be46720045f2cbd6689f160ab7c7"


def jar() -> Path:
    """Give the driver; fetch it if it is not kept beside the other jars."""
    kept = config.load({}, environment=config.child_environment({})).config.jars / "bench"
    found = kept / f"postgresql-{VERSION}.jar"
    if not found.exists():
        kept.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=kept) as work:
            _fetched(Path(work)).rename(found)
    if hashlib.sha256(found.read_bytes()).hexdigest() != SHA256:
        raise Missing(f"{found} is not the pinned one", hint="Delete it, and run it again.")
    return found


def _fetched(work: Path) -> Path:
    driver = ("-dependency", "org.postgresql", "postgresql", VERSION)
    ivy.retrieve(
        work, "-confs", "master", *driver, "-retrieve", f"{work}/[artifact]-[revision].[ext]"
    )
    found = work / f"postgresql-{VERSION}.jar"
    if not found.exists():
        raise Missing("PostgreSQL's JDBC driver was not fetched", hint="Run it again.")
    return found
