"""The rules of the house, kept by tests. All of them are quick: `make check` runs them."""

import ast
import re
import shlex
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
import yaml

from headrace import cli, config
from headrace.cli.command import Command
from headrace.config import KEYS
from headrace.keys import Key, shown

ROOT = Path(__file__).parent.parent
PACKAGES = ("headrace", "ingest", "etl_procs", "migrations", "api", "tpcdi", "bench", "dags")
PRODUCT = PACKAGES[:-2]
LOCKS = ("uv", "build", "core", "dev", "airflow", "peers")
MODULE_LINES_MAX = 400
TEST_LINES_MAX = 600


def tracked() -> list[Path]:
    """List the files of the repository, new ones included."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    names = listing.stdout.decode().rstrip("\0").split("\0")
    return [ROOT / name for name in names if (ROOT / name).is_file()]


def modules(*packages: str) -> list[Path]:
    return [module for package in packages for module in sorted((ROOT / package).rglob("*.py"))]


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def imports(module: Path) -> Iterator[str]:
    """Name the top-level packages that a module imports, wherever it does."""
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.split(".")[0]


def pins(lock: str) -> dict[str, set[str]]:
    """Read a lock: distribution -> its versions (more than one if markers choose)."""
    found: dict[str, set[str]] = {}
    text = (ROOT / "requirements" / f"{lock}.txt").read_text()
    for distribution, version in re.findall(
        r"^([a-z0-9-]+)(?:\[.*?\])?==(\S+)", text, re.MULTILINE
    ):
        found.setdefault(distribution, set()).add(version)
    assert found, lock
    return found


def test_only_the_configuration_reads_the_environment() -> None:
    readers = {
        name(module)
        for module in modules(*PACKAGES)
        for node in ast.walk(ast.parse(module.read_text()))
        if (isinstance(node, ast.Attribute) and node.attr in ("environ", "environb", "getenv"))
        or (isinstance(node, ast.ImportFrom) and node.module == "os")
    }
    assert readers == {"headrace/config.py"}


@pytest.mark.parametrize(
    "module", modules(*PACKAGES, "tests", "examples", "requirements"), ids=name
)
def test_a_module_is_short_enough_to_live_in(module: Path) -> None:
    most = TEST_LINES_MAX if module.parent.name == "tests" else MODULE_LINES_MAX
    lines = len(module.read_text().splitlines())
    assert lines <= most, f"{name(module)} has {lines} lines; give its second noun a module"


@pytest.mark.parametrize("module", modules(*PACKAGES), ids=name)
def test_every_package_and_module_says_what_it_owns(module: Path) -> None:
    assert ast.get_docstring(ast.parse(module.read_text())), name(module)


@pytest.mark.parametrize(
    ("room", "of"), [("etl_procs", "the core"), ("ingest", "ingest"), ("api", "the API")]
)
def test_the_map_names_every_module_of_a_room(room: str, of: str) -> None:
    _, _, rest = (ROOT / "docs/architecture.md").read_text().partition(f"## The modules of {of}\n")
    named = re.findall(r"`(\w+\.py)`", rest.partition("\n## ")[0])
    there = [path.name for path in modules(room) if path.name != "__init__.py"]
    assert sorted(named) == sorted(there)


def test_what_a_command_loads_for_a_dataflow_does_not_load_pandas() -> None:
    """Arrow imports it, where it is there, with the first scalar: most of a second."""
    program = "import sys, etl_procs, migrations.runner; sys.exit('pandas' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=False).returncode == 0


def test_import_layers_name_every_kernel_module() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    layers = contracts["contracts"][0]["layers"]
    kernel = {f"headrace.{module.stem}" for module in (ROOT / "headrace").glob("[!_]*.py")}
    assert set(layers[-1].split(" : ")) == kernel
    named = {part.split(".")[0] for layer in layers for part in re.split(r" [|:] ", layer)}
    assert named == set(PACKAGES) - {"dags"}
    assert set(contracts["root_packages"]) == set(PACKAGES)


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_holds_hashes_and_no_addresses(lock: str) -> None:
    text = (ROOT / "requirements" / f"{lock}.txt").read_text()
    for address in ("://", "--index-url", "--find-links", " @ "):
        assert address not in text
    requirements = re.split(r"\n(?=[a-z0-9])", text.strip())
    for requirement in requirements:
        assert "--hash=sha256:" in requirement, requirement


def test_every_lock_is_held_to_these_rules() -> None:
    assert {path.stem for path in (ROOT / "requirements").glob("*.txt")} == set(LOCKS)


@pytest.mark.parametrize("lock", ["core", "build"])
def test_development_has_the_versions_that_the_product_is_locked_to(lock: str) -> None:
    development = pins("dev")
    assert {key: development.get(key) for key in pins(lock)} == pins(lock)


def test_what_the_product_imports_is_locked() -> None:
    distributions = packages_distributions()
    locked = pins("core")
    unlocked = {
        f"{name(module)} imports {imported}"
        for module in modules(*PRODUCT)
        for imported in imports(module)
        if imported not in sys.stdlib_module_names
        and imported not in PACKAGES
        and not any(
            re.sub(r"[-_.]+", "-", distribution).lower() in locked
            for distribution in distributions.get(imported, [])
        )
    }
    assert not unlocked


def test_what_the_product_imports_is_declared() -> None:
    """What only comes along with another package may leave with it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = {re.split(r"[\[=<>~]", line)[0] for line in project["dependencies"]}
    distributions = packages_distributions()
    undeclared = {
        f"{name(module)} imports {imported}"
        for module in modules(*PRODUCT)
        for imported in imports(module)
        if imported in distributions
        and imported not in PACKAGES
        and not declared & {item.lower().replace("_", "-") for item in distributions[imported]}
    }
    assert not undeclared


def row(key: Key) -> str:
    """Write a key as a row of docs/configuration.md."""
    least = f"; at least {key.least}" if key.least else ""
    default = shown(key, key.default)
    return f"| `{key.name}` | `{default}` | `{key.variable}` | {key.help}{least} |"


def test_the_configuration_page_has_every_key_as_it_is() -> None:
    page = (ROOT / "docs" / "configuration.md").read_text().splitlines()
    wanted = [row(key) for key in KEYS.values()]
    missing = [line for line in wanted if line not in page]
    assert not missing, "docs/configuration.md lacks:\n" + "\n".join(missing)
    stale = [line for line in page if line.startswith("| `") and line not in wanted]
    assert not stale, "docs/configuration.md still has:\n" + "\n".join(stale)


def test_the_operations_page_says_what_happens_at_each_limit_of_the_core() -> None:
    page = (ROOT / "docs" / "operations.md").read_text()
    limits = [key for key in KEYS if key.startswith("core.") and key.endswith("_max")]
    untold = [key for key in limits if not key.startswith("core.group_") and f"`{key}`" not in page]
    assert not untold
    assert "`core.group_*_max`" in page


def words(example: str) -> list[str]:
    """Split an example as a shell would: one command, without what it is piped into."""
    lexer = shlex.shlex(example, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    command: list[str] = []
    for word in lexer:
        if set(word) <= set("|&;<>"):
            if "headrace" in command:
                break
            command = []
        else:
            command.append(word)
    return command


@pytest.mark.parametrize("command", cli.commands(), ids=lambda command: command.name)
def test_a_command_has_examples_that_parse(command: Command) -> None:
    assert command.summary
    assert command.description
    assert command.examples
    own = [words(example) for example in command.examples if "headrace " in example]
    assert own
    for split in own:
        program = split.index("headrace")
        for assignment in split[:program]:
            assert assignment.split("=")[0] in config.VARIABLES, assignment
        arguments = cli.parser().parse_args(split[program + 1 :])
        assert arguments.command.name == command.name


REGISTRY = re.compile(r"//[a-z0-9.-]*(pypi|pythonhosted|maven|npm|debian|docker)[a-z0-9.-]*/")
MACHINE = re.compile(r"/(home|Users)/[a-z]+/|(?<![\w.])/(work|root)/")


@pytest.mark.parametrize("path", tracked(), ids=name)
def test_no_file_names_a_registry_or_a_folder_of_somebodys_machine(path: Path) -> None:
    text = path.read_bytes().decode(errors="replace")
    for pattern in (REGISTRY, MACHINE):
        found = pattern.search(text)
        assert found is None or path == Path(__file__), found


def test_a_wheel_holds_every_file_of_the_product(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    packaged = set(zipfile.ZipFile(wheel).namelist())
    wanted = {name(path) for path in tracked() if path.relative_to(ROOT).parts[0] in PRODUCT}
    assert wanted <= packaged


def test_before_a_commit_and_in_ci_the_same_runs_as_by_hand() -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    assert [hook["entry"] for hook in hooks] == ["make check"]
    commands = [line for line in (ROOT / ".ci" / "run").read_text().splitlines() if line[:1] != "#"]
    assert commands[:2] == ["set -eu", 'cd "$(dirname "$0")/.."']
    assert commands[-1] == "make test"
    browser, needed = commands[2:-1]
    assert browser.startswith("command -v chromium >/dev/null || ")
    assert needed.startswith("if command -v chromium >/dev/null; then export CHROMIUM_NEEDED=1; fi")
