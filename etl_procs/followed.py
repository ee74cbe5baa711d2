"""Followed: word that somebody follows what a core has staged, as a file beside it.

What is staged goes as soon as all warehouses have it. Who follows a table reads it there, a moment
later: so while the word is fresh, it stays for as long as a word does.
"""

from pathlib import Path

FOLLOWED_S = 60.0


def follow(core: Path) -> None:
    """Say that somebody follows what is staged."""
    _word(core).touch()


def kept_s(core: Path, keep_s: float, now: float) -> float:
    """Tell how long batches stay after all warehouses have them."""
    try:
        said = _word(core).stat().st_mtime
    except FileNotFoundError:
        return keep_s
    return max(keep_s, FOLLOWED_S) if now - said <= FOLLOWED_S else keep_s


def _word(core: Path) -> Path:
    return core.with_suffix(".followed")
