"""Keys: what one configuration key is - its declaration, its checks, and how it is shown."""

import dataclasses
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_origin, get_type_hints
from urllib.parse import urlsplit, urlunsplit

from headrace.errors import ConfigError

PREFIX = "HEADRACE_"

WAREHOUSE_URL = re.compile(r"postgres(ql)?://\S+")
BOOTSTRAP = re.compile(r"[^\s:,]+:\d+(,[^\s:,]+:\d+)*")

TYPE_NAMES = {
    str: "text",
    int: "a whole number",
    bool: "true or false",
    Path: "a path",
    tuple: "a list of paths",
}


def option(
    default: Any,
    help_text: str,
    *,
    secret: bool = False,
    least: int | None = None,
    choices: tuple[str, ...] = (),
) -> Any:
    """Declare one key: its default, what it is for, and which values it may have."""
    return dataclasses.field(
        default=default,
        metadata={"help": help_text, "secret": secret, "least": least, "choices": choices},
    )


@dataclass(frozen=True, slots=True)
class Key:
    """One configuration key, as declared."""

    name: str
    type: type
    default: Any
    help: str
    secret: bool
    least: int | None
    choices: tuple[str, ...]

    @property
    def variable(self) -> str:
        """Name the environment variable that sets it."""
        return PREFIX + self.name.upper().replace(".", "_")


def keys_of(section: Any, prefix: str = "") -> list[Key]:
    """List the keys that a section and those within it declare."""
    found = []
    hints = get_type_hints(section)
    for field in dataclasses.fields(section):
        hint = hints[field.name]
        if get_origin(hint) is Mapping:  # of sections that have names of their own
            continue
        if dataclasses.is_dataclass(hint):
            found += keys_of(hint, prefix + field.name + ".")
        else:
            found.append(
                Key(
                    name=prefix + field.name,
                    type=get_origin(hint) or hint,
                    default=field.default,
                    **field.metadata,
                )
            )
    return found


def shown(key: Key, value: Any) -> str:
    """Write a value as `headrace config` prints it: as TOML, without secrets."""
    if isinstance(value, tuple):
        return json.dumps([str(item) for item in value])
    if isinstance(value, Path):
        return json.dumps(str(value))
    if key.secret and value:
        return json.dumps(hidden(value) if key.name.endswith(".url") else "***")
    return json.dumps(value)


def hidden(secret: str) -> str:
    """Hide a secret; of a URL only the password."""
    parts = urlsplit(secret)
    if not parts.hostname:
        return "***"
    user = f"{parts.username}:***@" if parts.password else ""
    port = f":{parts.port}" if parts.port else ""
    return urlunsplit(parts._replace(netloc=f"{user}{parts.hostname}{port}"))


def from_toml(key: Key, raw: Any, origin: str) -> Any:
    """Take a value from a TOML file."""
    if key.type is tuple and isinstance(raw, list) and all(isinstance(item, str) for item in raw):
        return tuple(Path(item) for item in raw)
    if key.type is Path and isinstance(raw, str):
        return Path(raw)
    if type(raw) is key.type:
        return raw
    raise _bad(key, raw, origin)


def from_text(key: Key, raw: str, origin: str) -> Any:
    """Read a value from text."""
    if key.type is tuple:
        return tuple(Path(item) for item in raw.split(os.pathsep) if item)
    if key.type is bool:
        if raw.lower() not in ("true", "false"):
            raise _bad(key, raw, origin)
        return raw.lower() == "true"
    try:
        return key.type(raw)
    except ValueError:
        raise _bad(key, raw, origin) from None


def checked(key: Key, value: Any, origin: str) -> Any:
    """Give the value back, or refuse it."""
    if key.least is not None and value < key.least:
        raise ConfigError(
            f"{origin}: {key.name} is {value}, and must be at least {key.least}",
            hint=f"{key.name}: {key.help} (default: {shown(key, key.default)}).",
        )
    if key.choices and value not in key.choices:
        named = ", ".join(choice for choice in key.choices if choice)
        raise ConfigError(
            f"{origin}: {key.name} is {value!r}",
            hint=f"Use one of {named} (default: {shown(key, key.default)}).",
        )
    if (
        key.name.startswith("warehouse")
        and key.name.endswith(".url")
        and value
        and not WAREHOUSE_URL.fullmatch(value)
    ):
        raise ConfigError(
            f"{origin}: {key.name} is not the URL of a PostgreSQL",
            hint="Write it as postgresql://user:password@host:port/database.",
        )
    if key.name == "broker.bootstrap" and value and not BOOTSTRAP.fullmatch(value):
        raise ConfigError(
            f"{origin}: broker.bootstrap is {value!r}, and is no host:port",
            hint="Write it as kafka.example:9092; several are separated by commas.",
        )
    if key.name.endswith(".port") and value > 65_535:
        raise ConfigError(
            f"{origin}: {key.name} is {value}, and ports end at 65535",
            hint="Give a port between 1 and 65535, or 0 for a free one.",
        )
    return value


def _bad(key: Key, raw: Any, origin: str) -> ConfigError:
    value = "***" if key.secret else repr(raw)
    return ConfigError(
        f"{origin}: {key.name} is {value}, and must be {TYPE_NAMES[key.type]}",
        hint=f"{key.name}: {key.help} (default: {shown(key, key.default)}).",
    )


def flags_from(settings: Sequence[str]) -> dict[str, str]:
    """Read `--set KEY=VALUE` flags."""
    flags = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals:
            raise ConfigError(
                f"--set {setting}: there is no value",
                hint="Write --set KEY=VALUE, as in --set api.port=8080.",
            )
        flags[name.strip()] = value.strip()
    return flags
