"""Java: where it is, and whether it can run Spark and the broker.

Standard library and kernel only: the tool that makes the environments asks here before any is made.
"""

import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from headrace.errors import Missing

VERSION_LEAST = 17
VECTOR_MODULE = "jdk.incubator.vector"  # Spark's launcher asks for it by name
ANSWER_TIMEOUT_S = 30

INSTALL = (
    "Install a JDK 17 or 21 (Debian, Ubuntu: apt install openjdk-17-jdk-headless; Fedora: dnf "
    "install java-21-openjdk-headless; macOS: brew install openjdk@21; or Eclipse Temurin, "
    "unpacked anywhere) and put its bin/ on PATH, or its folder into JAVA_HOME."
)


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that was asked and can do what Headrace needs."""

    program: Path
    version: str


def find(environment: Mapping[str, str]) -> Java:
    """Find the Java that Spark's launcher would take, and make sure that it will do."""
    program = _program(environment)
    modules = _modules(program)
    version = modules["java.base"]
    if int(version.split(".")[0].split("-")[0]) < VERSION_LEAST:
        raise _too_old(program, version)
    if VECTOR_MODULE not in modules:
        raise Missing(
            f"the Java {version} at {program} lacks the module {VECTOR_MODULE}, which Spark needs: "
            "it is a reduced runtime",
            hint=INSTALL,
        )
    return Java(program=program, version=version)


def _program(environment: Mapping[str, str]) -> Path:
    home = environment.get("JAVA_HOME")
    if home:
        program = Path(home) / "bin" / "java"
        if not program.is_file():
            raise Missing(
                f"JAVA_HOME is {home}, and there is no bin/java in it",
                hint="Let JAVA_HOME name a JDK 17 or 21, or unset it to use the java on PATH.",
            )
        return program
    found = shutil.which("java", path=environment.get("PATH"))
    if found is None:
        raise Missing("Java 17 or newer is needed, and there is no java on PATH", hint=INSTALL)
    return Path(found)


def _modules(program: Path) -> dict[str, str]:
    """Ask for the modules: one answer that holds the version too."""
    listed = _ask(program, "--list-modules")
    modules = dict(re.findall(r"^([\w.]+)@(\S+)", listed, re.MULTILINE))
    if "java.base" not in modules:  # modules came with Java 9
        banner = _ask(program, "-version")
        version = re.search(r'version "([^"]+)"', banner)
        if version is None:
            raise Missing(f"{program} does not run: {banner.strip()[:200]}", hint=INSTALL)
        raise _too_old(program, version[1])
    return modules


def _ask(program: Path, question: str) -> str:
    try:
        answer = subprocess.run(
            [program, question],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=ANSWER_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Missing(f"{program} does not run: {error}", hint=INSTALL) from error
    return answer.stdout.decode(errors="replace")


def _too_old(program: Path, version: str) -> Missing:
    return Missing(
        f"Java 17 or newer is needed, and {program} is Java {version}",
        hint=INSTALL,
    )
