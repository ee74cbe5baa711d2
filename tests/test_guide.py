"""The pages for authors: every piece of their code runs, in its order, and its assertions hold."""

import re
from pathlib import Path
from typing import Any

import pytest

from headrace.cli import commands

DOCS = Path(__file__).parent.parent / "docs"
GUIDES = [DOCS / "flows.md", DOCS / "ingest.md"]


def pieces(guide: Path) -> list[tuple[int, str]]:
    text = guide.read_text(encoding="utf-8")
    return [
        (text[: found.start(1)].count("\n"), found[1])
        for found in re.finditer(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    ]


@pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: guide.stem)
def test_every_piece_of_the_guide_runs(guide: Path) -> None:
    found = pieces(guide)
    assert len(found) >= 5
    namespace: dict[str, Any] = {}
    for line, code in found:
        # Compiled with its own line numbers, so that a failure points into the guide.
        exec(compile("\n" * line + code, str(guide), "exec"), namespace)  # noqa: S102 - ours


@pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: guide.stem)
def test_every_command_that_the_guide_names_is_there(guide: Path) -> None:
    named = set(re.findall(r"(?:`|^)headrace ([a-z-]+)", guide.read_text("utf-8"), re.MULTILINE))
    assert named
    assert named <= {command.name for command in commands()}
