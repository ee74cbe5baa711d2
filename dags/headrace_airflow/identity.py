"""The id of a migration: which task of which run of which DAG asks for it, and which attempt it is.

It is the same whenever a task is tried again, cleared, or scheduled twice; and no two tasks share
one: in each part, whatever is no letter, digit or one of `_:+-` is written as `~` and the hex
digits of its bytes, so that a dot only ever stands between parts.
"""

import hashlib
import re

LENGTH_MAX = 200  # what the API takes
ATTEMPTS_MAX = 99
BASE_LENGTH_MAX = LENGTH_MAX - len(f".{ATTEMPTS_MAX}")
CUT = "~~"  # in no part: there, two hex digits follow each `~`

OTHERS = re.compile(r"[^A-Za-z0-9_:+-]")


def migration_id(dag_id: str, task_id: str, run_id: str, map_index: int = -1) -> str:
    """Give the id of a task's first attempt."""
    mapped = [f"m{map_index}"] if map_index >= 0 else []
    return _shortened(".".join([*map(_escaped, (dag_id, task_id, run_id)), *mapped]))


def attempt_id(first: str, attempt: int) -> str:
    """Give the id of a task's attempt, from 1 on."""
    assert 1 <= attempt <= ATTEMPTS_MAX, attempt
    return first if attempt == 1 else f"{first}.{attempt}"


def is_attempt(id_: object, first: str) -> bool:
    """Tell whether an id is that of an attempt of a task, by the id of its first one."""
    return any(id_ == attempt_id(first, attempt) for attempt in range(1, ATTEMPTS_MAX + 1))


def _escaped(part: str) -> str:
    return OTHERS.sub(lambda found: "".join(f"~{b:02X}" for b in found[0].encode()), part)


def _shortened(long: str) -> str:
    """Keep the beginning, for people, and tell the rest apart by a digest."""
    if len(long) <= BASE_LENGTH_MAX:
        return long
    digest = CUT + hashlib.sha256(long.encode()).hexdigest()
    return long[: BASE_LENGTH_MAX - len(digest)] + digest
