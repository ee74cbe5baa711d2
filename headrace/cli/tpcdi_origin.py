"""From which directory a data folder is loaded: files of another one would count beside its own.

What was sent is known again by the paths of its files, so a phase that was begun with one directory
and ended with another would have the rows of both.
"""

import json
import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from headrace.errors import Refused
from headrace.local import lock

KEPT = "tpcdi-load.json"
"""Where the data folder keeps it."""

OTHER = "For another one, take another data folder (--home DIR), or `headrace reset` this one."

Made = tuple[object, object] | None
"""Seed and scale of a directory, if our generator made it."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The directory from which the last phase was begun."""

    directory: str
    batch: int
    made: Made

    @classmethod
    def of(cls, home: Path) -> "Origin | None":
        """Read what is kept; None if nothing was loaded."""
        try:
            kept = json.loads((home / KEPT).read_text(encoding="utf-8"))
            return cls(kept["directory"], kept["batch"], kept["made"] and tuple(kept["made"]))
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            raise Refused(
                f"{home / KEPT} does not say from which directory this data folder was loaded",
                hint="If you know it, delete that file, and load the same directory again.",
            ) from error

    @classmethod
    def keep(cls, home: Path, folder: Path, batch: int) -> None:
        """Keep that a phase is begun with a directory; whole, or not at all."""
        origin, new = cls(str(folder.resolve()), batch, made(folder)), home / f"{KEPT}.new"
        with new.open("w", encoding="utf-8") as file:
            file.write(json.dumps(asdict(origin)))
            file.flush()
            os.fsync(file.fileno())
        new.replace(home / KEPT)

    def is_at(self, folder: Path) -> bool:
        """Tell whether that is the directory."""
        return self.directory == str(folder.resolve())

    def is_like(self, folder: Path) -> bool:
        """Tell whether a directory has the same files, as far as one knows, wherever it is."""
        return self.is_at(folder) or self.made == made(folder) is not None

    def forbids(self, folder: Path, ended: Collection[int]) -> bool:
        """Tell whether rows of both would be mixed: amid a phase, files of any other directory
        would come again; after it, days of a history that was made otherwise do not go on with it.
        """
        is_made_otherwise = None not in (self.made, made(folder)) and self.made != made(folder)
        return is_made_otherwise or (self.batch not in ended and not self.is_at(folder))

    def refused(self, folder: Path) -> Refused:
        """Say that it is not that directory."""
        return Refused(
            f"this data folder was loaded from {self.directory}, and not from {folder}",
            hint=f"Name the directory that was loaded. {OTHER}",
        )


def chosen(named: Path | None, origin: Origin | None) -> Path:
    """Choose the directory that is named, or else the one that was loaded."""
    if named is not None:
        return named
    if origin is None:
        raise Refused(
            "this data folder does not know from which directory it was loaded",
            hint="Name that directory; or load one: `headrace tpcdi load DIR`.",
        )
    folder = Path(origin.directory)
    if not folder.is_dir():
        raise Refused(
            f"{folder}, which was loaded, is gone",
            hint="Name the directory, if it is elsewhere now.",
        )
    return folder


@contextmanager
def alone(place: Path, action: str) -> Iterator[None]:
    """Let nobody else do this with the data folder meanwhile."""
    place.mkdir(parents=True, exist_ok=True)
    descriptor = lock.take(place / "lock")
    if descriptor is None:
        raise Refused(
            f"another `headrace tpcdi {action}` runs in this data folder",
            hint="Wait until it has ended, or end it with Ctrl-C.",
        )
    try:
        yield
    finally:
        os.close(descriptor)


def made(folder: Path) -> Made:
    """Tell with which seed and scale a directory was made."""
    # Here, because every other command would pay for importing Arrow.
    from tpcdi.generate.directory import STATE

    try:
        state = json.loads((folder / STATE / "state.json").read_text(encoding="utf-8"))
        return state["seed"], state["scale"]
    except (OSError, ValueError, KeyError):
        return None
