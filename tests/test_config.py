"""Configuration: precedence, origins, and errors that name the key."""

import errno
from pathlib import Path

import pytest
from flows import EXAMPLE

from headrace import config
from headrace.cli import main
from headrace.crash import CrashPoints
from headrace.errors import ConfigError


def load(
    tmp_path: Path, toml: str = "", environment: dict[str, str] | None = None, **flags: str
) -> config.Loaded:
    path = tmp_path / "headrace.toml"
    path.write_text(toml)
    named = {name.replace("__", "."): value for name, value in flags.items()}
    return config.load(named, file=path, environment=environment or {})


def test_flags_win_over_environment_over_file_over_defaults(tmp_path: Path) -> None:
    toml = "[api]\nport = 1\nquery_rows_max = 2\n[push]\nevery_ms = 3"
    environment = {"HEADRACE_API_PORT": "4", "HEADRACE_PUSH_EVERY_MS": "5"}
    loaded = load(tmp_path, toml, environment, api__port="6")
    assert loaded.config.api.port == 6
    assert loaded.config.push.every_ms == 5
    assert loaded.config.api.query_rows_max == 2
    assert loaded.config.broker.host == "127.0.0.1"
    assert [loaded.origins[key] for key in ("api.port", "push.every_ms", "broker.host")] == [
        "flag api.port",
        "environment HEADRACE_PUSH_EVERY_MS",
        "default",
    ]
    assert loaded.origins["api.query_rows_max"] == str(tmp_path / "headrace.toml")


def test_paths_are_relative_to_where_they_were_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    loaded = load(tmp_path, 'flows = ["a.py"]\nhome = "data"', jars="jars")
    assert loaded.config.flows == (tmp_path / "a.py",)
    assert loaded.config.home == tmp_path / "data"
    assert loaded.config.jars == elsewhere / "jars"


def test_a_list_in_the_environment_is_separated_as_paths_are(tmp_path: Path) -> None:
    loaded = load(tmp_path, environment={"HEADRACE_FLOWS": "/a.py:/b.py"})
    assert loaded.config.flows == (Path("/a.py"), Path("/b.py"))


@pytest.mark.parametrize(
    ("toml", "environment", "message"),
    [
        ("[api]\nprot = 1", {}, r"there is no key api\.prot\n  Did you mean api\.port\?"),
        ("[nothing]\nx = 1", {}, r"there is no key nothing\.x"),
        ("", {"HEADRACE_API_PROT": "1"}, "environment HEADRACE_API_PROT: there is no key"),
        ("[api]\nport = 'x'", {}, r"api\.port is 'x', and must be a whole number"),
        ("[api]\nport = true", {}, r"api\.port is True, and must be a whole number"),
        ("", {"HEADRACE_API_PORT": "x"}, r"HEADRACE_API_PORT: api\.port is 'x'"),
        ("[api]\nport = 70000", {}, "ports end at 65535"),
        ("[api]\nport = -1", {}, "must be at least 0"),
        ("flows = 'a.py'", {}, "flows is 'a.py', and must be a list of paths"),
        ("", {"HEADRACE_WAREHOUSE_URL": "mysql://u:s3cret@h/d"}, "is not the URL of a PostgreSQL"),
        ("[broker]\nbootstrap = 'kafka'", {}, "broker.bootstrap is 'kafka', and is no host:port"),
        ("[broker]\nbootstrap = 'a:1,b'", {}, "is no host:port"),
        ("api = 3", {}, "there is no key api"),
        ("[api", {}, "is not valid TOML"),
        ("[warehouse]\nurl = 3", {}, r"warehouse\.url is \*\*\*, and must be text"),
        ("[warehouses.a]\ntables = '*'", {}, r"warehouses\.a has no url, or a name that is taken"),
        ("", {"HEADRACE_FILES_A_FILE": "x"}, r"there is no key files\.a\.file"),
        ("[warehouses.default]\nurl = 'postgresql://h/d'", {}, "a name that is taken"),
        ("[warehouses.a]\nhost = 'h'", {}, r"there is no key warehouses\.a\.host"),
        (
            "[warehouses.a-2]\nurl = 'x'",
            {},
            "a letter, then letters, digits and _, all of them small",
        ),
        ("", {"HEADRACE_WAREHOUSES_A_URL": "mysql://u:s3cret@h/d"}, r"warehouses\.a\.url is not"),
    ],
)
def test_errors_name_the_key(
    tmp_path: Path, toml: str, environment: dict[str, str], message: str
) -> None:
    with pytest.raises(ConfigError, match=message) as refused:
        load(tmp_path, toml, environment)
    assert "s3cret" not in str(refused.value)


def test_a_named_file_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not there"):
        config.load(file=tmp_path / "absent.toml", environment={})


def test_headrace_config_prints_values_and_origins_without_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HEADRACE_WAREHOUSE_URL", "postgresql://me:s3cret@host:5/db")
    monkeypatch.setenv("HEADRACE_API_KEY", "s3cret")
    assert main(["config", "--set", "api.port=8080"]) == 0
    printed = capsys.readouterr().out
    assert "s3cret" not in printed
    lines = {line.split(" = ")[0]: " ".join(line.split()) for line in printed.splitlines()}
    assert lines["api.port"] == "api.port = 8080 # flag api.port"
    assert lines["warehouse.url"] == (
        'warehouse.url = "postgresql://me:***@host:5/db" # environment HEADRACE_WAREHOUSE_URL'
    )
    assert lines["api.key"] == 'api.key = "***" # environment HEADRACE_API_KEY'
    assert set(lines) == set(config.KEYS)


def test_brokers_and_warehouses_are_named_as_their_clients_do(tmp_path: Path) -> None:
    loaded = load(
        tmp_path, broker__bootstrap="a.example:9092,b:1", warehouse__url="postgres://u:p@h/d?x=y"
    )
    assert loaded.config.broker.bootstrap == "a.example:9092,b:1"


def test_more_warehouses_have_names_of_their_own_and_children_are_told_of_them(
    tmp_path: Path,
) -> None:
    environment = {
        "HEADRACE_WAREHOUSES_A_URL": "postgresql://u:s3cret@h/a",
        "HEADRACE_WAREHOUSES_B_C_TABLES": "shop.*",
    }
    flags = {"warehouses.b_c.url": "postgresql://h/c"}
    loaded = load(tmp_path, "[warehouses.a]\ntables = 'bank.*'", environment, **flags)
    assert loaded.config.warehouses == {
        "a": config.Another("postgresql://u:s3cret@h/a", "bank.*"),
        "b_c": config.Another("postgresql://h/c", "shop.*"),
    }
    lines = {key: (value, origin) for key, value, origin in loaded.lines()}
    origin = "environment HEADRACE_WAREHOUSES_A_URL"
    assert lines["warehouses.a.url"] == ('"postgresql://u:***@h/a"', origin)
    assert lines["warehouses.b_c.url"] == ('"postgresql://h/c"', "flag warehouses.b_c.url")
    child = config.child_environment({"warehouses.b_c.tables": "shop.*"})
    assert child["HEADRACE_WAREHOUSES_B_C_TABLES"] == "shop.*"


def test_folders_of_files_are_beside_the_file_that_names_them(tmp_path: Path) -> None:
    loaded = load(tmp_path, "[files.old]\nfolder = 'data'", {"HEADRACE_FILES_B_FOLDER": "/b"})
    assert loaded.config.files == {
        "b": config.Files(Path("/b")),
        "old": config.Files(tmp_path / "data"),
    }


@pytest.mark.parametrize("words", [["status"], ["up"], ["migrate", "list"], ["reset", "--yes"]])
def test_a_data_folder_that_cannot_be_one_is_told(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words, "--home", "/etc/passwd", "--flow", str(EXAMPLE)]) in (2, 5)
    said = capsys.readouterr().err
    assert "/etc/passwd" in said
    assert "bug" not in said


def test_a_data_folder_that_may_not_be_read_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(tmp_path))

    monkeypatch.setattr("headrace.local.lock.holder", refuse)
    assert main(["status", "--home", str(tmp_path), "--flow", str(EXAMPLE)]) == 2
    assert f"{tmp_path} cannot be used: Permission denied" in capsys.readouterr().err


def test_an_error_is_one_sentence_a_hint_and_an_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["config", "--set", "api.prot=1"]) == 2
    said = capsys.readouterr().err
    assert "there is no key api.prot" in said
    assert "Did you mean api.port?" in said
    assert "Traceback" not in said
    assert main(["config", "--set", "api.prot=1", "--debug"]) == 2
    assert "Traceback" in capsys.readouterr().err


def test_a_bug_is_not_taken_for_an_error_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(config, "KEYS", None)
    assert main(["config"]) == 70
    assert "a bug in Headrace" in capsys.readouterr().err


def test_an_unknown_crash_point_is_refused() -> None:
    with pytest.raises(ConfigError, match="'nowhere' is not a crash point"):
        CrashPoints("nowhere")
    with pytest.raises(ConfigError, match="is not a crash point"):
        CrashPoints("core.commit.before:x")


def test_a_value_must_be_one_of_those_that_there_are(tmp_path: Path) -> None:
    assert load(tmp_path, core__durability="weak").config.core.durability == "weak"
    with pytest.raises(ConfigError, match="Use one of strong, weak") as refused:
        load(tmp_path, core__durability="eventual")
    assert "flag core.durability: core.durability is 'eventual'" in str(refused.value)


def test_the_limits_of_the_core_are_at_least_one(tmp_path: Path) -> None:
    for key in ("attempts_max", "batch_rows_max", "pending_batches_max", "dead_letters_mb_max"):
        with pytest.raises(ConfigError, match=rf"core\.{key} is 0, and must be at least 1"):
            load(tmp_path, environment={f"HEADRACE_CORE_{key.upper()}": "0"})


@pytest.mark.parametrize(("raw", "is_private"), [("true", True), ("False", False)])
def test_a_key_that_is_true_or_false_is_said_so(raw: str, is_private: bool) -> None:
    given = config.load({"api.webhooks_private": raw}, environment={}).config
    assert given.api.webhooks_private is is_private
    for other in ("1", "yes", ""):
        with pytest.raises(ConfigError, match="must be true or false"):
            config.load({"api.webhooks_private": other}, environment={})
