"""The environment of peers in Python, made when a benchmark needs it: `make setup` does not."""

import hashlib
import shutil
import sys
import tempfile
from pathlib import Path

from bench import killing
from headrace.errors import Missing

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / ".venv-peers"
LOCK = ROOT / "requirements" / "peers.txt"
UV = ROOT / ".tools" / "bin" / "uv"
STAMP = "made-from.txt"


def is_there() -> bool:
    """Tell whether it was made before, from the same lock."""
    stamp = FOLDER / STAMP
    return stamp.exists() and stamp.read_text(encoding="ascii") == _digest()


def python() -> Path:
    """Give its interpreter; it is made if need be, whole or not at all."""
    if not is_there():
        _make()
    return FOLDER / "bin" / "python"


def _make() -> None:
    if not UV.exists():
        raise Missing("the installer of the peers' environment is not there", hint="`make setup`")
    shutil.rmtree(FOLDER, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=f"{FOLDER.name}-", dir=ROOT) as work:
        made = Path(work) / "made"
        killing.run([UV, "venv", "--python", sys.executable, made])
        into = ("pip", "install", "--python", made)
        killing.run([UV, "--system-certs", *into, "--require-hashes", "-r", LOCK])
        (made / STAMP).write_text(_digest(), encoding="ascii")
        made.rename(FOLDER)


def _digest() -> str:
    return hashlib.sha256(LOCK.read_bytes()).hexdigest()
