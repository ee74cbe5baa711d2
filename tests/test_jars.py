"""Jars: pinned, verified, whole or not there."""

import hashlib
from collections.abc import Callable
from pathlib import Path

import fake_java
import pytest

from headrace.config import Config
from headrace.errors import HeadraceError, Missing
from headrace.local import jars

WANTED = {
    "broker/kafka.jar": b"the broker",
    "broker/log4j.jar": b"its log",
    "spark/source.jar": b"the source",
}
IVY_FINDS = "for word; do last=$word; done; dir=${last%%/\\[conf*}\n" + "\n".join(
    f'mkdir -p "$dir/{name.split("/")[0]}"; printf "%s" "{text.decode()}" > "$dir/{name}"'
    for name, text in WANTED.items()
)
"""What Ivy does in the end: every jar stands where `-retrieve`, its last argument, says."""

UseJava = Callable[[str], None]


@pytest.fixture
def configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    pinned = tmp_path / "jars.sha256"
    lines = [f"{hashlib.sha256(text).hexdigest()}  {name}\n" for name, text in WANTED.items()]
    pinned.write_text("".join(lines))
    monkeypatch.setattr(jars, "PINS_FILE", pinned)
    return Config(jars=tmp_path / "jars")


@pytest.fixture
def use_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> UseJava:
    """Let Ivy do what a shell script does."""

    def use(script: str) -> None:
        fake_java.install(tmp_path / "java" / "bin", otherwise=script)
        monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))

    return use


def silent(_done: int, _total: int) -> None:
    """Show nothing."""


def lay(configuration: Config) -> Path:
    """Put every jar where it belongs."""
    for name, text in WANTED.items():
        path = jars.folder(configuration) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text)
    return jars.folder(configuration)


def test_whole_jars_are_given_to_the_broker_and_to_spark(configuration: Config) -> None:
    kept = lay(configuration)
    assert jars.is_whole(configuration)
    assert jars.broker_classpath(configuration) == f"{kept}/broker/*"
    assert jars.spark_jars(configuration) == [kept / "spark" / "source.jar"]


def test_jars_that_were_never_fetched_are_missing(configuration: Config) -> None:
    for ask in (jars.broker_classpath, jars.spark_jars):
        with pytest.raises(Missing, match=r"the jars of (broker|spark) are not in") as caught:
            ask(configuration)
        assert "`headrace jars`" in caught.value.hint


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda kept: (kept / "broker/log4j.jar").unlink(), "broker/log4j.jar is missing"),
        (lambda kept: (kept / "broker/log4j.jar").write_bytes(b""), "log4j.jar is not the pinned"),
        (lambda kept: (kept / "broker/evil.jar").touch(), "broker/evil.jar is not in the list"),
    ],
)
def test_a_damaged_jar_is_named_to_those_who_need_it(
    configuration: Config, damage: Callable[[Path], None], said: str
) -> None:
    kept = lay(configuration)
    damage(kept)
    assert not jars.is_whole(configuration)
    with pytest.raises(Missing, match=said):
        jars.broker_classpath(configuration)
    assert jars.spark_jars(configuration)


def test_fetching_leaves_whole_jars_and_nothing_else(
    configuration: Config, use_java: UseJava
) -> None:
    use_java(IVY_FINDS)
    jars.fetch(configuration, silent)
    assert jars.is_whole(configuration)
    assert list(configuration.jars.iterdir()) == [jars.folder(configuration)]


def test_fetching_mends_damaged_jars(configuration: Config, use_java: UseJava) -> None:
    (lay(configuration) / "spark" / "source.jar").write_bytes(b"cut sho")
    use_java(IVY_FINDS)
    jars.fetch(configuration, silent)
    assert jars.is_whole(configuration)


def test_fetching_clears_away_what_a_killed_one_left(
    configuration: Config, use_java: UseJava
) -> None:
    (configuration.jars / f"{jars.UNFINISHED}of-another" / "cache").mkdir(parents=True)
    use_java(IVY_FINDS)
    jars.fetch(configuration, silent)
    assert list(configuration.jars.iterdir()) == [jars.folder(configuration)]


def test_what_is_whole_is_not_fetched(configuration: Config, use_java: UseJava) -> None:
    lay(configuration)
    use_java("echo 'Ivy was asked' >&2; exit 1")
    jars.fetch(configuration, silent)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ('echo x >> "$dir/broker/kafka.jar"', "broker/kafka.jar is not the pinned one"),
        ('rm "$dir/spark/source.jar"', "spark/source.jar is missing"),
        ('touch "$dir/spark/new.jar"', "spark/new.jar is not in the list"),
    ],
)
def test_a_fetched_jar_that_is_not_the_pinned_one_is_named_and_nothing_is_kept(
    configuration: Config, use_java: UseJava, change: str, said: str
) -> None:
    use_java(f"{IVY_FINDS}\n{change}")
    with pytest.raises(HeadraceError, match=said):
        jars.fetch(configuration, silent)
    assert list(configuration.jars.iterdir()) == []


def test_without_a_network_it_says_so_and_nothing_is_kept(
    configuration: Config, use_java: UseJava
) -> None:
    use_java("echo '\tServer access error at url ... (Connection refused)'; exit 1")
    with pytest.raises(Missing, match=r"could not be fetched: .*Connection refused") as caught:
        jars.fetch(configuration, silent)
    assert "network" in caught.value.hint
    assert list(configuration.jars.iterdir()) == []


def test_a_full_disk_is_said_and_nothing_is_kept(configuration: Config, use_java: UseJava) -> None:
    use_java("echo 'java.io.IOException: No space left on device'; exit 1")
    with pytest.raises(Missing, match="the disk is full"):
        jars.fetch(configuration, silent)
    assert list(configuration.jars.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_named(configuration: Config) -> None:
    configuration.jars.write_text("a file")
    with pytest.raises(Missing, match=r"could not be kept in .*: File exists") as caught:
        jars.fetch(configuration, silent)
    assert "`jars`" in caught.value.hint


def test_progress_counts_what_is_found_and_what_is_downloaded(
    configuration: Config, use_java: UseJava
) -> None:
    use_java(f"echo '\tfound a#b;1 in public'; echo '\t[SUCCESSFUL ] a#b;1!b.jar'\n{IVY_FINDS}")
    seen: list[tuple[int, int]] = []
    jars.fetch(configuration, lambda done, total: seen.append((done, total)))
    assert seen == [(1, 6), (2, 6)]


def test_the_pinned_list_can_be_written_anew(configuration: Config, use_java: UseJava) -> None:
    before = jars.PINS_FILE.read_text()
    jars.PINS_FILE.write_text("")
    use_java(IVY_FINDS)
    jars.pin(configuration)
    assert jars.PINS_FILE.read_text() == before
