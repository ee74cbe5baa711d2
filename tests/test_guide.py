"""The guide for authors: every piece of its code runs, in its order, and its assertions hold."""

import re
from pathlib import Path
from typing import Any

from headrace.cli import commands

GUIDE = Path(__file__).parent.parent / "docs" / "flows.md"


def pieces() -> list[tuple[int, str]]:
    text = GUIDE.read_text(encoding="utf-8")
    return [
        (text[: found.start(1)].count("\n"), found[1])
        for found in re.finditer(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    ]


def test_every_piece_of_the_guide_runs() -> None:
    found = pieces()
    assert len(found) > 10
    namespace: dict[str, Any] = {}
    for line, code in found:
        # Compiled with its own line numbers, so that a failure points into the guide.
        exec(compile("\n" * line + code, str(GUIDE), "exec"), namespace)  # noqa: S102 - ours


def test_every_command_that_the_guide_names_is_there() -> None:
    named = set(re.findall(r"`headrace ([a-z-]+)", GUIDE.read_text(encoding="utf-8")))
    assert named
    assert named <= {command.name for command in commands()}
