"""The tool that makes the environments: it leaves whole ones, or none and one clear sentence."""

import ast
import base64
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import fake_java
import pytest

from headrace.errors import Exit, HeadraceError, Missing

ROOT = Path(__file__).parent.parent
TOOL = ROOT / "requirements" / "environments.py"
CLOSED = "http://127.0.0.1:9/simple"
"""An index that cannot be reached: nobody listens on the discard port."""


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("environments", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["environments"] = module  # its dataclasses look for it there
    spec.loader.exec_module(module)
    return module


environments = load()


# An environment is whole, or made again


class Maker:
    """Makes a small environment, and counts how often."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.times = 0

    def __call__(self) -> None:
        self.times += 1
        installed = self.folder / "lib" / "python3.11" / "site-packages"
        (installed / "tiny-1.dist-info").mkdir(parents=True)
        (installed / "tiny.py").write_text("tiny = 1\n")
        (installed / "tiny-1.dist-info" / "RECORD").write_text(
            "tiny.py,sha256=x,9\n../../../bin/tiny,sha256=x,\ntiny.pyc,,\ntiny-1.dist-info/RECORD,,\n"
        )
        (self.folder / "bin").mkdir()
        (self.folder / "bin" / "tiny").touch()
        (self.folder / "bin" / "python").symlink_to(sys.executable)


@pytest.fixture
def maker(tmp_path: Path) -> Maker:
    return Maker(tmp_path / ".venv")


def ensure(maker: Maker, made_from: str = "a lock") -> None:
    environments.ensure(environments.Environment(maker.folder, "tiny", made_from, maker))


def test_a_whole_environment_is_left_alone(maker: Maker) -> None:
    ensure(maker)
    ensure(maker)
    assert maker.times == 1


@pytest.mark.parametrize(
    "damage",
    [
        "lib/python3.11/site-packages/tiny.py",
        "lib/python3.11/site-packages/tiny-1.dist-info/RECORD",
        "lib/python3.11/site-packages/tiny-1.dist-info",
        "lib/python3.11/site-packages",
        "bin/tiny",
        "bin/python",
        "made-from.json",
        ".",
    ],
)
def test_an_environment_that_lost_something_is_made_again(maker: Maker, damage: str) -> None:
    ensure(maker)
    lost = maker.folder / damage
    shutil.rmtree(lost) if lost.is_dir() else lost.unlink()
    ensure(maker)
    assert maker.times == 2
    ensure(maker)
    assert maker.times == 2


@pytest.mark.parametrize(
    "damage", ["lib/python3.11/site-packages/tiny.py", "made-from.json", "bin/python"]
)
def test_an_environment_with_a_cut_off_file_is_made_again(maker: Maker, damage: str) -> None:
    ensure(maker)
    cut = maker.folder / damage
    if cut.is_symlink():
        cut.unlink()
        cut.symlink_to("no-such-python")
    else:
        os.truncate(cut, 3)
    ensure(maker)
    assert maker.times == 2


def test_what_another_lock_made_is_made_again(maker: Maker) -> None:
    ensure(maker)
    ensure(maker, "another lock")
    assert maker.times == 2


def test_what_stands_in_the_place_of_an_environment_gives_way(maker: Maker) -> None:
    maker.folder.write_text("a file")
    ensure(maker)
    assert maker.times == 1


@pytest.mark.parametrize(
    "failure", [HeadraceError("no", hint="why"), KeyboardInterrupt(), OSError()]
)
def test_an_environment_that_could_not_be_finished_is_removed(
    maker: Maker, failure: BaseException
) -> None:
    def half() -> None:
        maker()
        raise failure

    with pytest.raises(type(failure)):
        environments.ensure(environments.Environment(maker.folder, "tiny", "a lock", half))
    assert not maker.folder.exists()


# What the installer is asked for, and what its failures become


def wheel(folder: Path) -> str:
    """Build a wheel of nothing but one module, and give its line in a lock."""
    files = {
        "tiny.py": "tiny = 1\n",
        "tiny-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n",
        "tiny-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any",
    }
    record = "".join(f"{name},{_recorded(text)},{len(text)}\n" for name, text in files.items())
    files["tiny-1.0.dist-info/RECORD"] = record + "tiny-1.0.dist-info/RECORD,,\n"
    path = folder / "tiny-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return f"tiny==1.0 --hash=sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}\n"


def _recorded(text: str) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest())
    return "sha256=" + digest.decode().rstrip("=")


Install = Callable[[str], Path]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Let the real installer make an environment from one lock, with an empty cache."""
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    root = tmp_path / "checkout"
    (root / "requirements").mkdir(parents=True)
    (root / "requirements" / "build.txt").touch()
    (root / ".tools").symlink_to(ROOT / ".tools")

    def make(lock: str) -> Path:
        (root / "requirements" / "airflow.txt").write_text(lock)
        with (root / "requirements" / "airflow.txt").open() as held:
            environment = environments.Checkout(root, held.fileno()).airflow()
            environments.ensure(environment)
            assert environment.is_whole()
        folder = environment.folder
        assert isinstance(folder, Path)
        return folder

    return make


@pytest.fixture
def find_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is all the index there is."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    monkeypatch.setenv("UV_NO_INDEX", "1")
    monkeypatch.setenv("UV_FIND_LINKS", str(folder))
    return folder


def test_an_environment_holds_what_its_lock_names(install: Install, find_links: Path) -> None:
    made = install(wheel(find_links))
    run = subprocess.run([made / "bin" / "python", "-c", "import tiny"], check=False)
    assert run.returncode == 0


def test_damage_in_place_does_not_reach_the_cache_that_mends_it(
    install: Install, find_links: Path
) -> None:
    lock = wheel(find_links)
    (module,) = install(lock).glob("lib/python*/site-packages/tiny.py")
    os.truncate(module, 0)
    install(lock)
    assert module.read_text() == "tiny = 1\n"


def test_a_package_that_is_not_the_locked_one_is_refused(
    install: Install, find_links: Path, tmp_path: Path
) -> None:
    wheel(find_links)
    with pytest.raises(Missing, match="is not the one in the lock"):
        install(f"tiny==1.0 --hash=sha256:{'0' * 64}\n")
    assert not (tmp_path / "checkout" / ".venv-airflow").exists()


def test_an_index_that_cannot_be_reached_is_said(
    install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UV_DEFAULT_INDEX", CLOSED)
    with pytest.raises(Missing, match="the package index could not be reached") as caught:
        install(wheel(tmp_path))
    assert "proxy" in caught.value.hint
    assert not (tmp_path / "checkout" / ".venv-airflow").exists()


@pytest.mark.parametrize(
    ("output", "said"),
    [
        ("error: write error: No space left on device (os error 28)", "the disk is full"),
        ("ERROR: Could not install: [Errno 122] Disk quota exceeded", "the disk is full"),
        ("ERROR: No matching distribution (from versions: none)", "could not be reached"),
        (
            "error: failed to create directory: Permission denied (os error 13)",
            "may not be written",
        ),
        ("error: it went up in smoke\n  cause: fire", "uv failed: error: it went up in smoke"),
        ("up in smoke", "uv failed: up in smoke"),
        ("", "uv failed: Resolved 3 packages"),
    ],
)
def test_a_failure_of_the_installer_becomes_one_sentence(output: str, said: str) -> None:
    error = environments._failure("uv", f"Resolved 3 packages\n{output}\n")
    assert said in error.what
    assert "\n" not in error.what


# The whole tool, on a machine where something is missing


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with nothing set up."""
    root = tmp_path / "checkout"
    names = ("requirements", "headrace", "pyproject.toml")
    for name in names:
        source = ROOT / name
        copy = shutil.copytree if source.is_dir() else shutil.copy
        root.mkdir(exist_ok=True)
        copy(source, root / name)
    return root


def run(checkout: Path, environment: dict[str, str], *program: str) -> tuple[int, str]:
    command = program or (sys.executable, "requirements/environments.py", "setup")
    done = subprocess.run(
        command,
        cwd=checkout,
        env={"HOME": str(checkout.parent / "home"), "LANG": "C.UTF-8", **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Traceback" not in done.stderr
    made = [name for name in (".tools", ".venv", ".venv-airflow") if (checkout / name).exists()]
    assert made == []
    return done.returncode, done.stderr


def test_an_old_python_can_read_the_tool_and_is_told_which_one_to_use(checkout: Path) -> None:
    ast.parse(TOOL.read_text(), feature_version=(3, 6))
    pretend = (
        "import runpy, sys; sys.version_info = (3, 9, 2); sys.version = '3.9.2 (main)'; "
        "runpy.run_path('requirements/environments.py', run_name='__main__')"
    )
    code, said = run(checkout, {"PATH": ""}, sys.executable, "-c", pretend)
    assert code == Exit.MISSING
    assert said.startswith("setup: Python 3.11 or newer is needed, and ")
    assert "is 3.9.2\n" in said
    assert "make setup PYTHON=" in said


def test_java_is_missed_before_anything_is_downloaded(checkout: Path, tmp_path: Path) -> None:
    code, said = run(checkout, {"PATH": str(tmp_path)})
    assert code == Exit.MISSING
    assert said.startswith("setup: Java 17 or newer is needed, and there is no java on PATH\n")


def test_a_reduced_java_is_refused_before_anything_is_downloaded(
    checkout: Path, tmp_path: Path
) -> None:
    reduced = fake_java.install(tmp_path / "bin", modules="java.base@17.0.15")
    code, said = run(checkout, {"PATH": str(reduced)})
    assert code == Exit.MISSING
    assert "lacks the module jdk.incubator.vector" in said


def test_a_python_that_cannot_make_environments_is_told_what_to_install(
    checkout: Path, tmp_path: Path
) -> None:
    (tmp_path / "without").mkdir()
    (tmp_path / "without" / "sitecustomize.py").write_text(
        "import sys; sys.modules['ensurepip'] = None\n"
    )
    java = fake_java.install(tmp_path / "bin")
    code, said = run(checkout, {"PATH": str(java), "PYTHONPATH": str(tmp_path / "without")})
    assert code == Exit.MISSING
    assert "has no module ensurepip" in said
    assert "apt install python3-venv" in said


def test_without_a_network_nothing_is_left(checkout: Path, tmp_path: Path) -> None:
    java = fake_java.install(tmp_path / "bin")
    environment = {"PATH": str(java), "PIP_INDEX_URL": CLOSED, "PIP_RETRIES": "0"}
    code, said = run(checkout, environment)
    assert code == Exit.MISSING
    assert "the package index could not be reached" in said


def test_make_says_when_there_is_no_python_at_all(checkout: Path) -> None:
    shutil.copy(ROOT / "Makefile", checkout)
    code, said = run(checkout, {"PATH": os.defpath}, "make", "setup", "PYTHON=no-such-python")
    assert code != 0
    assert "setup: Python 3.11 or newer is needed, and there is no no-such-python on PATH" in said
