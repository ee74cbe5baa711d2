"""PostgreSQL's JDBC driver, which one peer needs: fetched once, through Ivy, and pinned."""

import hashlib
import subprocess
import tempfile
from pathlib import Path

import pyspark

from headrace import config
from headrace.errors import Missing
from headrace.local import java

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
    environment = config.child_environment({})
    (ivy,) = (Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar")
    done = subprocess.run(
        [
            str(java.find(environment).program),
            *(f"-Divy.default.ivy.user.dir={work}", "-jar", str(ivy)),
            *("-cache", str(work / "cache"), "-m2compatible", "-confs", "master"),
            *("-dependency", "org.postgresql", "postgresql", VERSION),
            *("-retrieve", f"{work}/[artifact]-[revision].[ext]"),
        ],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    found = work / f"postgresql-{VERSION}.jar"
    if done.returncode or not found.exists():
        last = "\n".join(done.stdout.splitlines()[-5:])
        raise Missing(f"PostgreSQL's JDBC driver was not fetched:\n{last}", hint="Run it again.")
    return found
