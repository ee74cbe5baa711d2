"""Configuration: `headrace.toml` < environment `HEADRACE_*` < flags.

The only module that reads the environment. Every key is a field of a section
(headrace/sections.py), and `docs/configuration.md` is held against them by a test.
"""

import dataclasses
import difflib
import os
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_type_hints

from headrace.errors import ConfigError
from headrace.keys import PREFIX, Key, checked, from_text, from_toml, keys_of, shown

# Who reads the configuration knows its sections by this module.
from headrace.sections import Another as Another
from headrace.sections import Api as Api
from headrace.sections import Broker as Broker
from headrace.sections import Collect as Collect
from headrace.sections import Config as Config
from headrace.sections import Core as Core
from headrace.sections import Engine as Engine
from headrace.sections import Files as Files
from headrace.sections import Merge as Merge
from headrace.sections import Push as Push
from headrace.sections import Supervisor as Supervisor
from headrace.sections import Testing as Testing
from headrace.sections import Warehouse as Warehouse

FILE_NAME = "headrace.toml"
FILE_VARIABLE = PREFIX + "CONFIG"


@dataclass(frozen=True, slots=True)
class Loaded:
    """A configuration, and where each of its keys came from."""

    config: Config
    origins: Mapping[str, str]

    def lines(self) -> list[tuple[str, str, str]]:
        """List (key, value, origin), secrets hidden."""
        return [
            (
                key.name,
                shown(key, value_of(self.config, key.name)),
                self.origins.get(key.name, "default"),
            )
            for key in keys_in(self.config)
        ]


KEYS: dict[str, Key] = {key.name: key for key in keys_of(Config)}
NAMED: dict[str, tuple[type, str]] = {"warehouses": (Another, "url"), "files": (Files, "folder")}
"""Sections of which there may be several, each under a name, and the key that they cannot lack."""
OF_NAMED = {f"{of}.{k.name}": k for of, (section, _) in NAMED.items() for k in keys_of(section)}
IN_NAMED = re.compile(rf"({'|'.join(NAMED)})\.([a-z][a-z0-9_]*)\.([a-z]+)")
NAMED_VARIABLE = re.compile(rf"^({'|'.join(NAMED)})_([a-z][a-z0-9_]*)_([a-z]+)$")
VARIABLES = {key.variable: key.name for key in KEYS.values()}


def find_key(name: str) -> Key | None:
    """Give the key called `name`, those of sections with names included."""
    named = IN_NAMED.fullmatch(name)
    key = OF_NAMED.get(f"{named[1]}.{named[3]}") if named else None
    return replace(key, name=name) if key else KEYS.get(name)


def keys_in(config: Config) -> list[Key]:
    """List all keys that a configuration has."""
    more = (
        replace(key, name=f"{of}.{name}.{key.name}")
        for of, (section, _) in NAMED.items()
        for name in getattr(config, of)
        for key in keys_of(section)
    )
    return [*KEYS.values(), *more]


def value_of(config: Config, name: str) -> Any:
    """Give the value of the key called `name`."""
    value: Any = config
    for part in name.split("."):
        value = value[part] if isinstance(value, Mapping) else getattr(value, part)
    return value


def load(
    flags: Mapping[str, str] | None = None,
    *,
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> Loaded:
    """Read file, environment and flags, each over the one before."""
    environment = os.environ if environment is None else environment
    values: dict[str, Any] = {key.name: key.default for key in KEYS.values()}
    origins = {key.name: "default" for key in KEYS.values()}

    def take(name: str, raw: Any, origin: str, parse: Callable[[Key, Any, str], Any]) -> None:
        key = find_key(name)
        if key is None:
            raise ConfigError(f"{origin}: there is no key {name}", hint=_nearest(name))
        values[name] = checked(key, parse(key, raw, origin), origin)
        origins[name] = origin

    path = _file(file, environment)
    if path is not None:
        for name, raw in _flattened(_toml(path)):
            take(name, raw, str(path), from_toml)
    for variable, raw in environment.items():
        if variable.startswith(PREFIX) and variable != FILE_VARIABLE:
            take(_named_by(variable), raw, f"environment {variable}", from_text)
    for name, raw in (flags or {}).items():
        take(name, raw, f"flag {name}", from_text)

    base = path.parent if path is not None else Path.cwd()
    bases = {name: base if origins[name] == str(path) else Path.cwd() for name in values}
    folders = [name for name in values if IN_NAMED.fullmatch(name) and name.endswith(".folder")]
    for name in ("home", "jars", *folders):
        values[name] = _absolute(values[name], bases[name])
    values["flows"] = tuple(_absolute(flow, bases["flows"]) for flow in values["flows"])
    for name in (n for n in KEYS if n.endswith("_file")):
        values[name] = values[name] and str(_absolute(Path(values[name]), bases[name]))
    for of in NAMED:
        values[of] = _several(of, values)
    return Loaded(config=_built(Config, values), origins=origins)


def _named_by(variable: str) -> str:
    """Give the name of the key that a variable of the environment sets."""
    own = NAMED_VARIABLE.sub(r"\1.\2.\3", variable.removeprefix(PREFIX).lower())
    return VARIABLES.get(variable, own)


def _several(of: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Make the sections of a kind that have names."""
    section, needed = NAMED[of]
    given: dict[str, dict[str, Any]] = {}
    for key, value in values.items():
        if (named := IN_NAMED.fullmatch(key)) and named[1] == of:
            given.setdefault(named[2], {})[named[3]] = value
    for name, keys in given.items():
        if not keys.get(needed) or name == "default":
            raise ConfigError(
                f"{of}.{name} has no {needed}, or a name that is taken",
                hint=f"Write [{of}.NAME] with a {needed}; `default` is the section warehouse.",
            )
    return {name: section(**keys) for name, keys in sorted(given.items())}


def _file(file: Path | None, environment: Mapping[str, str]) -> Path | None:
    named = file or (Path(environment[FILE_VARIABLE]) if FILE_VARIABLE in environment else None)
    if named is None:
        here = Path.cwd() / FILE_NAME
        return here if here.is_file() else None
    if not named.is_file():
        raise ConfigError(
            f"the configuration file {named} is not there",
            hint=f"Create it, or leave out --config and {FILE_VARIABLE}.",
        )
    return named.absolute()


def _toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}", hint="Mend that line.") from error


def _flattened(table: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for name, value in table.items():
        if isinstance(value, dict):
            found += _flattened(value, f"{prefix}{name}.")
        else:
            found.append((prefix + name, value))
    return found


def _nearest(name: str) -> str:
    if (of := name.split(".")[0]) in NAMED:
        return f"Write [{of}.NAME]: a letter, then letters, digits and _, all of them small."
    near = difflib.get_close_matches(name, KEYS, n=1)
    return f"{f'Did you mean {near[0]}? ' if near else ''}`headrace config` lists every key."


def _absolute(path: Path, base: Path) -> Path:
    return base / path.expanduser()  # which is that alone, if it is absolute


def _built(section: Any, values: Mapping[str, Any], prefix: str = "") -> Any:
    hints = get_type_hints(section)
    return section(
        **{
            field.name: (
                _built(hints[field.name], values, prefix + field.name + ".")
                if dataclasses.is_dataclass(hints[field.name])
                else values[prefix + field.name]
            )
            for field in dataclasses.fields(section)
        }
    )


def joined_paths(paths: Sequence[str]) -> str:
    """Write a list of paths as one value of a flag or a variable."""
    return os.pathsep.join(paths)


def child_environment(overrides: Mapping[str, Any]) -> dict[str, str]:
    """Make the environment of a child: this one's, with configuration keys set on top."""
    keys = {name: find_key(name) for name in overrides}
    assert all(keys.values()), keys
    given = {key.variable: str(overrides[name]) for name, key in keys.items() if key}
    return {**os.environ, **given}
