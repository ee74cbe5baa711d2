"""Java: the one that Spark would take is found, and refused with a reason if it will not do."""

from pathlib import Path

import fake_java
import pytest

from headrace.errors import Missing
from headrace.local import java


def test_a_java_with_all_that_is_needed_is_found_on_the_path(tmp_path: Path) -> None:
    folder = fake_java.install(tmp_path)
    assert java.find({"PATH": str(folder)}) == java.Java(folder / "java", "17.0.15")


def test_java_home_comes_before_the_path(tmp_path: Path) -> None:
    on_path = fake_java.install(tmp_path / "path")
    fake_java.install(tmp_path / "home" / "bin")
    found = java.find({"PATH": str(on_path), "JAVA_HOME": str(tmp_path / "home")})
    assert found.program == tmp_path / "home" / "bin" / "java"


def test_no_java_is_said_with_how_to_install_one(tmp_path: Path) -> None:
    with pytest.raises(Missing, match="no java on PATH") as caught:
        java.find({"PATH": str(tmp_path)})
    assert "apt install openjdk-17" in caught.value.hint


def test_a_java_home_without_java_is_named(tmp_path: Path) -> None:
    with pytest.raises(Missing, match=rf"JAVA_HOME is {tmp_path}, and there is no bin/java"):
        java.find({"PATH": "/usr/bin", "JAVA_HOME": str(tmp_path)})


def test_a_java_without_the_vector_module_is_named(tmp_path: Path) -> None:
    folder = fake_java.install(tmp_path, modules="java.base@21.0.2")
    with pytest.raises(Missing, match=r"Java 21.0.2 at .* lacks the module jdk.incubator.vector"):
        java.find({"PATH": str(folder)})


@pytest.mark.parametrize("version", ["11.0.2", "9", "16-ea"])
def test_an_old_java_is_named(tmp_path: Path, version: str) -> None:
    folder = fake_java.install(tmp_path, modules=f"java.base@{version}")
    with pytest.raises(Missing, match=f"17 or newer is needed, and .* is Java {version}"):
        java.find({"PATH": str(folder)})


def test_a_java_from_before_modules_is_named(tmp_path: Path) -> None:
    banner = """echo 'openjdk version "1.8.0_402"' >&2; [ "$1" = -version ]"""
    folder = fake_java.install(tmp_path, modules="", otherwise=banner)
    with pytest.raises(Missing, match=r"is Java 1\.8\.0_402"):
        java.find({"PATH": str(folder)})


def test_a_java_that_does_not_run_is_named_with_what_it_says(tmp_path: Path) -> None:
    folder = fake_java.install(tmp_path, modules="", otherwise="echo 'no runtime here'; exit 1")
    with pytest.raises(Missing, match="does not run: no runtime here"):
        java.find({"PATH": str(folder)})
