"""The data folder: what lies where in it, its secrets, and whether it is ours to delete."""

import contextlib
import os
import secrets
import shutil
from pathlib import Path

from headrace.errors import ConfigError, Missing, Refused

MARKER = "headrace.home"
MARKER_TEXT = "This is a data folder of Headrace, format 1. `headrace reset` deletes it.\n"
FREE_MB_LEAST = 512
PATH_BYTES_MAX = 512  # PostgreSQL takes 1,024, and topics and tables add their names below it


class Home:
    """The paths of one data folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.run = root / "run"
        """What is derived and only true while the stack runs: locks and state."""
        self.logs = root / "logs"
        """One log for each part, and one of the supervisor."""
        self.secrets = root / "secrets"
        """Generated passwords and keys, for the owner only."""
        self.broker = root / "broker"
        """The broker's log and settings."""
        self.postgres = root / "postgres"
        """PostgreSQL's data."""
        self.rates = root / "rates.json"
        """How fast this machine and its warehouse are, as they were measured."""
        self.migrations = root / "migrations.db"
        """The migrations that were asked for."""
        self.continuous = root / "continuous.db"
        """The continuous queries that are registered, and their results."""
        self.pages = root / "pages"
        """What the API keeps of answers that are read page by page; gone when it ends."""
        self.airflow = root / "airflow"
        """What `headrace airflow` keeps."""
        self.ports = root / "ports.json"
        """The ports that were chosen once."""
        self.state = self.run / "stack.json"
        """What runs, and where: the file that clients read."""
        self.supervisor_lock = self.run / "supervisor.lock"
        """Held by the living supervisor."""
        self.writer_lock = self.run / "writer.lock"
        """Held by the engine that writes the core, and signed by it when it is ready."""
        self.pushers = self.run / "pushers.json"
        """What the pushers of the engine do."""
        self.postgres_password = self.secrets / "postgres.password"
        """The password of the local PostgreSQL."""
        self.api_key = self.secrets / "api.key"
        """The owner's key of the API."""
        self.keyring = self.secrets / "keys.db"
        """The keys of all other callers of the API."""

    def metrics(self, partition: int = 0) -> Path:
        """What the core of a partition measures, written anew all the time."""
        return self.run / f"metrics-{partition}.json"

    def log(self, part: str) -> Path:
        """Name the log of a part."""
        return self.logs / f"{part}.log"

    def part_lock(self, part: str) -> Path:
        """Name the lock that is held while anything of a part's processes lives."""
        return self.run / f"{part}.lock"

    @property
    def is_ours(self) -> bool:
        """Whether this folder is a data folder of Headrace."""
        return (self.root / MARKER).is_file()

    def create(self) -> None:
        """Make the folder, or make sure that the one that is there is ours and has room."""
        self._check_path()
        self._check_room()
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            if not self.is_ours:
                self._claim()
            for folder in (self.run, self.logs, self.secrets, self.broker):
                folder.mkdir(exist_ok=True)
            self.secrets.chmod(0o700)
        except OSError as error:
            raise ConfigError(
                f"the data folder {self.root} cannot be written: {error.strerror}",
                hint="Give another with --home DIR or HEADRACE_HOME, or change its owner.",
            ) from error

    def require_ours(self) -> None:
        """Refuse a folder that is not a data folder of Headrace."""
        if not self.is_ours:
            raise Refused(
                f"{self.root} is not a data folder of Headrace: it holds no {MARKER}",
                hint="Nothing was deleted. Name the right folder with --home DIR.",
            )

    def delete(self) -> None:
        """Delete all of it; refuses a folder that is not ours."""
        self.require_ours()
        for entry in self.root.iterdir():
            if entry.name == MARKER:  # the last to go: an interrupted deletion can be repeated
                continue
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            else:
                entry.unlink()
        (self.root / MARKER).unlink()
        with contextlib.suppress(OSError):  # it may be a mount point, or no longer be empty
            self.root.rmdir()

    def _claim(self) -> None:
        if any(self.root.iterdir()):
            raise Refused(
                f"{self.root} is not empty and not a data folder of Headrace",
                hint="Give a new or an empty folder with --home DIR or HEADRACE_HOME.",
            )
        self.root.chmod(0o700)  # every tuple is in there
        (self.root / MARKER).write_text(MARKER_TEXT, encoding="utf-8")

    def _check_path(self) -> None:
        if len(os.fsencode(self.root)) > PATH_BYTES_MAX:
            raise ConfigError(
                f"the path of the data folder is longer than {PATH_BYTES_MAX} bytes: {self.root}",
                hint="Give a shorter one with --home DIR or HEADRACE_HOME.",
            )
        if any(character in str(self.root) for character in ",\n"):
            raise ConfigError(
                f"the path of the data folder holds a comma or a line break: {str(self.root)!r}",
                hint="The broker cannot use it. Give another with --home DIR or HEADRACE_HOME.",
            )

    def _check_room(self) -> None:
        there = next(folder for folder in (self.root, *self.root.parents) if folder.exists())
        free_mb = shutil.disk_usage(there).free // 2**20
        if free_mb < FREE_MB_LEAST:
            raise Missing(
                f"the disk of {self.root} has {free_mb} MiB left, and {FREE_MB_LEAST} are needed",
                hint="Make room there, or give a folder on another disk with --home DIR.",
            )


def ensure_secret(path: Path) -> str:
    """Read a secret; the first time, make one that only the owner can read."""
    if not path.exists():
        draft = path.with_suffix(".new")
        draft.unlink(missing_ok=True)
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(secrets.token_urlsafe(24))
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    return path.read_text(encoding="ascii").strip()
