"""Ivy, which PySpark carries: it fetches the jars of peers."""

import subprocess
from pathlib import Path

import pyspark

from headrace import config
from headrace.errors import Missing
from headrace.local import java


def retrieve(work: Path, *what: str | Path) -> None:
    """Have Ivy do what its arguments say, with its cache in `work`."""
    environment = config.child_environment({})
    (ivy,) = (Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar")
    done = subprocess.run(
        [
            str(java.find(environment).program),
            *(f"-Divy.default.ivy.user.dir={work}", "-jar", str(ivy)),
            *("-cache", str(work / "cache"), "-m2compatible", *what),
        ],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        last = "\n".join(done.stdout.splitlines()[-5:])
        raise Missing(f"the jars of a peer were not fetched:\n{last}", hint="Run it again.")
